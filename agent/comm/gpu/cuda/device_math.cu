#include "agent/comm/gpu/device_math.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>

#include "kernels/device/cuda/cuda_call.h"

namespace lockstep::comm::device_math {

namespace {

constexpr unsigned kThreads = 256;
constexpr size_t kBlocksMax = 4096;

unsigned blocks_of(size_t count) {
  return static_cast<unsigned>(std::min((count + kThreads - 1) / kThreads, kBlocksMax));
}

// How an element is loaded and stored: 16-bit floats go through f32, as on the CPU (reduce.cc).
template <class T>
struct Element {
  using Wide = T;
  static __device__ Wide load(T value) { return value; }
  static __device__ T store(Wide value) { return value; }
};
template <>
struct Element<__half> {
  using Wide = float;
  static __device__ float load(__half value) { return __half2float(value); }
  static __device__ __half store(float value) { return __float2half_rn(value); }
};
template <>
struct Element<__nv_bfloat16> {
  using Wide = float;
  static __device__ float load(__nv_bfloat16 value) { return __bfloat162float(value); }
  static __device__ __nv_bfloat16 store(float value) { return __float2bfloat16_rn(value); }
};

// One thread per element, with a stride of the whole grid; `to` may be `from`.
template <class T>
__global__ void __launch_bounds__(kThreads) to_boolean_kernel(T* to, const T* from, size_t count) {
  using E = Element<T>;
  using Wide = typename E::Wide;
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    to[i] = E::store(E::load(from[i]) != Wide(0) ? Wide(1) : Wide(0));
  }
}

// Divides in the wide type: integers round towards zero, floats once. u8 cannot hold a number of
// ranks above 255, so integers divide in 64 bits.
template <class T>
__device__ T quotient(T value, int ranks) {
  return static_cast<T>(static_cast<int64_t>(value) / ranks);
}
__device__ inline float quotient(float value, int ranks) {
  return __fdiv_rn(value, static_cast<float>(ranks));
}
__device__ inline double quotient(double value, int ranks) {
  return __ddiv_rn(value, static_cast<double>(ranks));
}

template <class T>
__global__ void __launch_bounds__(kThreads) divide_kernel(T* data, size_t count, int ranks) {
  using E = Element<T>;
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    data[i] = E::store(quotient(E::load(data[i]), ranks));
  }
}

template <class T>
Status run_to_boolean(int index, void* stream, const BooleanArgs& args) {
  TRY_CUDA(index, cudaSetDevice(index));
  to_boolean_kernel<T><<<blocks_of(args.count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<T*>(args.to), static_cast<const T*>(args.from), args.count);
  TRY_CUDA_CODE(index, "to_boolean_kernel", cudaGetLastError());
  return {};
}

template <class T>
Status run_divide(int index, void* stream, const CommDevice::DivideArgs& args) {
  TRY_CUDA(index, cudaSetDevice(index));
  divide_kernel<T><<<blocks_of(args.count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<T*>(args.data), args.count, args.ranks);
  TRY_CUDA_CODE(index, "divide_kernel", cudaGetLastError());
  return {};
}

}  // namespace

Status to_boolean(int index, void* stream, DataType type, const BooleanArgs& args) {
  if (args.count == 0) return {};
  switch (type) {
    case DataType::kF32:
      return run_to_boolean<float>(index, stream, args);
    case DataType::kF64:
      return run_to_boolean<double>(index, stream, args);
    case DataType::kF16:
      return run_to_boolean<__half>(index, stream, args);
    case DataType::kBf16:
      return run_to_boolean<__nv_bfloat16>(index, stream, args);
    case DataType::kI32:
      return run_to_boolean<int32_t>(index, stream, args);
    case DataType::kI64:
      return run_to_boolean<int64_t>(index, stream, args);
    case DataType::kU8:
      return run_to_boolean<uint8_t>(index, stream, args);
  }
  return internal("[cuda] to_boolean: unknown element type");
}

Status divide(int index, void* stream, DataType type, const CommDevice::DivideArgs& args) {
  if (args.count == 0 || args.ranks == 1) return {};
  switch (type) {
    case DataType::kF32:
      return run_divide<float>(index, stream, args);
    case DataType::kF64:
      return run_divide<double>(index, stream, args);
    case DataType::kF16:
      return run_divide<__half>(index, stream, args);
    case DataType::kBf16:
      return run_divide<__nv_bfloat16>(index, stream, args);
    case DataType::kI32:
      return run_divide<int32_t>(index, stream, args);
    case DataType::kI64:
      return run_divide<int64_t>(index, stream, args);
    case DataType::kU8:
      return run_divide<uint8_t>(index, stream, args);
  }
  return internal("[cuda] divide: unknown element type");
}

}  // namespace lockstep::comm::device_math
