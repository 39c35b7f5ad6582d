#include "kernels/device/cuda_api.h"

#include <cuda_runtime_api.h>

namespace lockstep::cuda_api {

namespace {

Error cuda_error(const char* what, cudaError_t code) {
  return unavailable(std::string("[") + what + "] success, got " + cudaGetErrorString(code));
}

cudaStream_t stream_of(void* handle) {
  return static_cast<cudaStream_t>(handle);
}

}  // namespace

#define TRY_CUDA(call)                                         \
  do {                                                         \
    const cudaError_t code_ = (call);                          \
    if (code_ != cudaSuccess) return cuda_error(#call, code_); \
  } while (false)

int device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

Result<DeviceInfo> describe(int index) {
  if (index < 0 || index >= device_count()) {
    return not_found("[describe] a CUDA device below " + std::to_string(device_count()) + ", got " +
                     std::to_string(index));
  }
  cudaDeviceProp properties = {};
  TRY_CUDA(cudaGetDeviceProperties(&properties, index));
  return DeviceInfo{.name = properties.name,
                    .memory_bytes = properties.totalGlobalMem,
                    .units = properties.multiProcessorCount};
}

Result<void*> create_stream(int index) {
  TRY_CUDA(cudaSetDevice(index));
  cudaStream_t stream = nullptr;
  TRY_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return static_cast<void*>(stream);
}

void destroy_stream(void* stream) {
  cudaStreamDestroy(stream_of(stream));
}

Status synchronize(void* stream) {
  TRY_CUDA(cudaStreamSynchronize(stream_of(stream)));
  return {};
}

Result<void*> allocate(int index, size_t bytes) {
  TRY_CUDA(cudaSetDevice(index));
  void* data = nullptr;
  TRY_CUDA(cudaMalloc(&data, bytes));
  if (const cudaError_t code = cudaMemset(data, 0, bytes); code != cudaSuccess) {
    cudaFree(data);
    return cuda_error("cudaMemset", code);
  }
  return data;
}

void release(int index, void* data) {
  if (cudaSetDevice(index) == cudaSuccess) cudaFree(data);
}

Status copy(void* stream, const CopyArgs& args) {
  TRY_CUDA(cudaMemcpyAsync(args.to, args.from, args.bytes, cudaMemcpyDefault, stream_of(stream)));
  return {};
}

#undef TRY_CUDA

}  // namespace lockstep::cuda_api
