#include "kernels/ops/pointwise.h"

#include "kernels/device/cuda/launch.cuh"
#include "kernels/ops/cuda_ops.h"
#include "kernels/ops/dispatch.cuh"
#include "kernels/ops/geometry.h"

namespace lockstep::kernels::cuda {

namespace {

template <class T, int N>
__global__ void __launch_bounds__(kElementThreads)
    forward(const T* x, T* y, int64_t count, Pointwise function) {
  for_own_elements<T, N>(count, [&](auto pack, int64_t at) {
    float values[pack.kCount];
    load_values(values, x + at);
    for (float& value : values) {
      value = function == Pointwise::kTanh ? tanhf(value) : (value < 0.0f ? 0.0f : value);
    }
    store_values(y + at, values);
  });
}

template <class T, int N>
__global__ void __launch_bounds__(kElementThreads)
    backward(const T* y, const T* dy, T* dx, int64_t count, Pointwise function) {
  for_own_elements<T, N>(count, [&](auto pack, int64_t at) {
    float values[pack.kCount], gradients[pack.kCount];
    load_values(values, y + at);
    load_values(gradients, dy + at);
    for (int i = 0; i < pack.kCount; ++i) {
      const float value = values[i];
      gradients[i] = function == Pointwise::kTanh ? gradients[i] * (1.0f - value * value)
                                                  : (value <= 0.0f ? 0.0f : gradients[i]);
    }
    store_values(dx + at, gradients);
  });
}

}  // namespace

void pointwise_forward(Stream& stream, const PointwiseForward& args) {
  const PackedRows rows{.dtype = args.y.dtype, .begins = {args.x.data, args.y.data}};
  dispatch(rows, [&]<class T, int N>(Pack<T, N>) {
    launch(stream, elements_shape("pointwise_forward", args.count, N), forward<T, N>,
           elements_of<T>(args.x), elements_of<T>(args.y), args.count, args.function);
  });
}

void pointwise_backward(Stream& stream, const PointwiseBackward& args) {
  const PackedRows rows{.dtype = args.dx.dtype,
                        .begins = {args.y.data, args.dy.data, args.dx.data}};
  dispatch(rows, [&]<class T, int N>(Pack<T, N>) {
    launch(stream, elements_shape("pointwise_backward", args.count, N), backward<T, N>,
           elements_of<T>(args.y), elements_of<T>(args.dy), elements_of<T>(args.dx), args.count,
           args.function);
  });
}

}  // namespace lockstep::kernels::cuda
