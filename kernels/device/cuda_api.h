#pragma once

#include <cstddef>

#include "common/base/result.h"
#include "kernels/device/device.h"

// The part of the CUDA runtime that device.cc needs. cuda/ has it; no_cuda/ has the same symbols,
// which count no device and return kUnavailable. Streams are cudaStream_t.
namespace lockstep::cuda_api {

int device_count();
Result<DeviceInfo> describe(int index);
Result<void*> create_stream(int index);
void destroy_stream(void* stream);
Status synchronize(void* stream);
// Zeroed device memory.
Result<void*> allocate(int index, size_t bytes);
void release(int index, void* data);
Status copy(void* stream, const CopyArgs& args);

}  // namespace lockstep::cuda_api
