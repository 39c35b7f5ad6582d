#include "kernels/ops/conv2d.h"

#include "kernels/device/cuda/launch.cuh"
#include "kernels/device/cuda/reduce.cuh"
#include "kernels/ops/cuda_ops.h"
#include "kernels/ops/dispatch.cuh"
#include "kernels/ops/dnn/dnn.h"
#include "kernels/ops/geometry.h"

// Simple kernels, in which a thread or a block computes one value. cuDNN has faster ones for most
// convolutions.
namespace lockstep::kernels::cuda {

namespace {

constexpr int kFilterThreads = 128;

template <class T>
__device__ __forceinline__ float value_at(const T* from, int64_t at) {
  return to_float(from[at]);
}

template <class T>
__global__ void __launch_bounds__(kElementThreads)
    forward(const T* x, const T* weight, const float* bias, T* y, Conv2dShape s) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= s.out_count()) return;
  const int64_t k = at % s.filters, pixel = at / s.filters;
  const int64_t q = pixel % s.out_width(), p = pixel / s.out_width() % s.out_height();
  const int64_t n = pixel / s.out_pixels();
  const int64_t channels = s.channels / s.groups;
  const int64_t first_channel = k / (s.filters / s.groups) * channels;
  float sum[1] = {bias == nullptr ? 0.0f : bias[k]};
  for (int64_t r = 0; r < s.filter_height; ++r) {
    const int64_t h = p * s.stride - s.padding + r;
    if (h < 0 || h >= s.height) continue;
    for (int64_t t = 0; t < s.filter_width; ++t) {
      const int64_t w = q * s.stride - s.padding + t;
      if (w < 0 || w >= s.width) continue;
      const int64_t from = ((n * s.height + h) * s.width + w) * s.channels + first_channel;
      const int64_t tap = k * s.filter_count() + (r * s.filter_width + t) * channels;
      for (int64_t c = 0; c < channels; ++c) {
        sum[0] += value_at(x, from + c) * value_at(weight, tap + c);
      }
    }
  }
  store_values(y + at, sum);
}

template <class T>
__global__ void __launch_bounds__(kElementThreads)
    backward_inputs(const T* dy, const T* weight, T* dx, Conv2dShape s, bool adds) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= s.in_count()) return;
  const int64_t c = at % s.channels, pixel = at / s.channels;
  const int64_t w = pixel % s.width, h = pixel / s.width % s.height;
  const int64_t n = pixel / (s.width * s.height);
  const int64_t channels = s.channels / s.groups, filters = s.filters / s.groups;
  const int64_t first = c / channels * filters, own = c % channels;
  float sum[1] = {adds ? value_at(dx, at) : 0.0f};
  for (int64_t r = 0; r < s.filter_height; ++r) {
    const int64_t down = h + s.padding - r, p = down / s.stride;
    if (down < 0 || down % s.stride != 0 || p >= s.out_height()) continue;
    for (int64_t t = 0; t < s.filter_width; ++t) {
      const int64_t right = w + s.padding - t, q = right / s.stride;
      if (right < 0 || right % s.stride != 0 || q >= s.out_width()) continue;
      const int64_t from = ((n * s.out_height() + p) * s.out_width() + q) * s.filters;
      const int64_t tap = (r * s.filter_width + t) * channels + own;
      for (int64_t k = first; k < first + filters; ++k) {
        sum[0] += value_at(dy, from + k) * value_at(weight, k * s.filter_count() + tap);
      }
    }
  }
  store_values(dx + at, sum);
}

// One value of a filter per block, which adds up over all output pixels.
template <class T>
__global__ void __launch_bounds__(kFilterThreads)
    backward_filters(const T* dy, const T* x, float* dweight, Conv2dShape s) {
  const int64_t at = blockIdx.x;
  const int64_t channels = s.channels / s.groups;
  const int64_t k = at / s.filter_count(), tap = at % s.filter_count();
  const int64_t c = k / (s.filters / s.groups) * channels + tap % channels;
  const int64_t t = tap / channels % s.filter_width, r = tap / channels / s.filter_width;
  float sum = 0.0f;
  for (int64_t pixel = threadIdx.x; pixel < s.batch * s.out_pixels(); pixel += blockDim.x) {
    const int64_t q = pixel % s.out_width(), p = pixel / s.out_width() % s.out_height();
    const int64_t h = p * s.stride - s.padding + r, w = q * s.stride - s.padding + t;
    if (h < 0 || h >= s.height || w < 0 || w >= s.width) continue;
    const int64_t n = pixel / s.out_pixels();
    sum += value_at(dy, pixel * s.filters + k) *
           value_at(x, ((n * s.height + h) * s.width + w) * s.channels + c);
  }
  sum = reduce_block(sum, Plus{}, shared_memory<float>());
  if (threadIdx.x == 0) dweight[at] += sum;
}

// One filter per block.
template <class T>
__global__ void __launch_bounds__(kFilterThreads)
    backward_bias(const T* dy, float* dbias, Conv2dShape s) {
  float sum = 0.0f;
  for (int64_t pixel = threadIdx.x; pixel < s.batch * s.out_pixels(); pixel += blockDim.x) {
    sum += value_at(dy, pixel * s.filters + blockIdx.x);
  }
  sum = reduce_block(sum, Plus{}, shared_memory<float>());
  if (threadIdx.x == 0) dbias[blockIdx.x] += sum;
}

// y[at] += bias[at % filters]
template <class T>
__global__ void __launch_bounds__(kElementThreads)
    add_bias(const float* bias, T* y, int64_t count, int64_t filters) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= count) return;
  const float sum[1] = {value_at(y, at) + bias[at % filters]};
  store_values(y + at, sum);
}

__global__ void __launch_bounds__(kElementThreads)
    add_gradient(const Bf16* gradient, float* dweight, int64_t count) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at < count) dweight[at] += to_float(gradient[at]);
}

LaunchShape blocks_shape(const char* name, int64_t blocks) {
  return {.name = name,
          .blocks = {.x = blocks},
          .threads = kFilterThreads,
          .shared_bytes = kFilterThreads / kWarpThreads * sizeof(float)};
}

void tell(Stream& stream, const Status& status) {
  if (!status.ok()) stream.fail(status.error());
}

void forward_by_cudnn(Stream& stream, const Conv2dForward& args) {
  const Conv2dShape& s = args.shape;
  tell(stream, dnn::conv2d_forward(stream, args));
  if (args.bias == nullptr) return;
  dispatch({.dtype = args.y.dtype}, [&]<class T, int N>(Pack<T, N>) {
    launch(stream, elements_shape("conv2d_add_bias", s.out_count(), 1), add_bias<T>, args.bias,
           elements_of<T>(args.y), s.out_count(), s.filters);
  });
}

void filters_by_cudnn(Stream& stream, const Conv2dBackward& args) {
  tell(stream, dnn::conv2d_filters(stream, args));
  if (args.dy.dtype == DType::kF32) return;
  const int64_t count = args.shape.weight_count();
  launch(stream, elements_shape("conv2d_add_gradient", count, 1), add_gradient,
         static_cast<const Bf16*>(args.workspace.data), args.dweight, count);
}

template <class T>
void backward_filters_of(Stream& stream, const Conv2dBackward& args) {
  if (args.by.filters == Conv2dBy::kCudnn) return filters_by_cudnn(stream, args);
  launch(stream, blocks_shape("conv2d_backward_filters", args.shape.weight_count()),
         backward_filters<T>, elements_of<T>(args.dy), elements_of<T>(args.x), args.dweight,
         args.shape);
}

template <class T>
void backward_inputs_of(Stream& stream, const Conv2dBackward& args) {
  if (args.by.inputs == Conv2dBy::kCudnn) return tell(stream, dnn::conv2d_inputs(stream, args));
  launch(stream, elements_shape("conv2d_backward_inputs", args.shape.in_count(), 1),
         backward_inputs<T>, elements_of<T>(args.dy), elements_of<T>(args.weight),
         elements_of<T>(args.dx), args.shape, args.adds_dx);
}

}  // namespace

void conv2d_forward(Stream& stream, const Conv2dForward& args) {
  if (args.shape.out_count() == 0) return;
  if (args.by.forward == Conv2dBy::kCudnn) return forward_by_cudnn(stream, args);
  dispatch({.dtype = args.y.dtype}, [&]<class T, int N>(Pack<T, N>) {
    launch(stream, elements_shape("conv2d_forward", args.shape.out_count(), 1), forward<T>,
           elements_of<T>(args.x), elements_of<T>(args.weight), args.bias, elements_of<T>(args.y),
           args.shape);
  });
}

void conv2d_backward(Stream& stream, const Conv2dBackward& args) {
  const Conv2dShape& s = args.shape;
  if (s.out_count() == 0) return;
  dispatch({.dtype = args.dy.dtype}, [&]<class T, int N>(Pack<T, N>) {
    if (args.dbias != nullptr) {
      launch(stream, blocks_shape("conv2d_backward_bias", s.filters), backward_bias<T>,
             elements_of<T>(args.dy), args.dbias, s);
    }
    if (args.dweight != nullptr) backward_filters_of<T>(stream, args);
    if (args.dx) backward_inputs_of<T>(stream, args);
  });
}

}  // namespace lockstep::kernels::cuda
