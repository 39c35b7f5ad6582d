#include "kernels/device/cuda_api.h"

namespace lockstep::cuda_api {

namespace {

Error absent() {
  return unavailable("[cuda] a build with CUDA, this one has none");
}

}  // namespace

int device_count() {
  return 0;
}
Result<DeviceInfo> describe(int) {
  return absent();
}
Result<DeviceMemory> memory_of(int) {
  return absent();
}
Result<PeerAccess> peer_access(int, int) {
  return absent();
}
Result<void*> create_stream(int) {
  return absent();
}
void destroy_stream(void*) {}
Status synchronize(int, void*) {
  return absent();
}
Result<void*> create_event(int, bool) {
  return absent();
}
void destroy_event(void*) {}
Status record(int, void*, void*) {
  return absent();
}
Status delay(int, void*, void*) {
  return absent();
}
Result<bool> passed(int, void*) {
  return absent();
}
Status synchronize_event(int, void*) {
  return absent();
}
Result<double> elapsed(int, const EventPair&) {
  return absent();
}
Result<void*> allocate(int, size_t, std::string_view) {
  return absent();
}
void release(int, void*) {}
Result<void*> allocate_pinned(int, size_t, std::string_view) {
  return absent();
}
void release_pinned(void*) {}
Status copy(int, void*, const CopyArgs&) {
  return absent();
}

}  // namespace lockstep::cuda_api
