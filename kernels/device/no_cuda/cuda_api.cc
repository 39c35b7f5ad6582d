#include "kernels/device/cuda_api.h"

namespace lockstep::kernels::cuda_api {

namespace {

Error cuda_not_built() {
  return unavailable("[cuda] this build has no CUDA support");
}

}  // namespace

int device_count() {
  return 0;
}
Result<DeviceInfo> describe(int) {
  return cuda_not_built();
}
Result<DeviceMemory> memory_of(int) {
  return cuda_not_built();
}
Result<PeerAccess> peer_access(int, int) {
  return cuda_not_built();
}
Result<void*> create_stream(int) {
  return cuda_not_built();
}
void destroy_stream(void*) {}
Status synchronize(int, void*) {
  return cuda_not_built();
}
Result<void*> create_event(int, bool) {
  return cuda_not_built();
}
void destroy_event(void*) {}
Status record(int, void*, void*) {
  return cuda_not_built();
}
Status stream_wait_event(int, void*, void*) {
  return cuda_not_built();
}
Result<bool> passed(int, void*) {
  return cuda_not_built();
}
Status synchronize_event(int, void*) {
  return cuda_not_built();
}
Result<double> elapsed(int, const EventPair&) {
  return cuda_not_built();
}
Result<void*> allocate(int, size_t, std::string_view) {
  return cuda_not_built();
}
void release(int, void*) {}
Result<void*> allocate_pinned(int, size_t, std::string_view) {
  return cuda_not_built();
}
void release_pinned(void*) {}
Status pin(int, const Workspace&, std::string_view) {
  return cuda_not_built();
}
void unpin(void*) {}
Status copy(int, void*, const CopyArgs&) {
  return cuda_not_built();
}

}  // namespace lockstep::kernels::cuda_api
