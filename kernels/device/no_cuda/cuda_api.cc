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
Result<void*> create_stream(int) {
  return absent();
}
void destroy_stream(void*) {}
Status synchronize(void*) {
  return absent();
}
Result<void*> allocate(int, size_t) {
  return absent();
}
void release(int, void*) {}
Status copy(void*, const CopyArgs&) {
  return absent();
}

}  // namespace lockstep::cuda_api
