#include "kernels/ops/gelu.h"

#include "kernels/device/cuda/launch.cuh"
#include "kernels/ops/cuda_ops.h"
#include "kernels/ops/dispatch.cuh"
#include "kernels/ops/gelu_value.cuh"
#include "kernels/ops/geometry.h"

namespace lockstep::kernels::cuda {

namespace {

template <class T, GeluForm kForm>
__device__ __forceinline__ float value_of(float x) {
  return kForm == GeluForm::kErf ? erf_gelu_value(x) : gelu_value<T>(x);
}
template <class T, GeluForm kForm>
__device__ __forceinline__ float derivative_of(float x) {
  return kForm == GeluForm::kErf ? erf_gelu_derivative(x) : gelu_derivative<T>(x);
}

template <class T, int N, GeluForm kForm>
__global__ void __launch_bounds__(kElementThreads) forward(const T* x, T* y, int64_t count) {
  for_own_elements<T, N>(count, [&](auto pack, int64_t at) {
    float values[pack.kCount];
    load_values(values, x + at);
    for (float& value : values) value = value_of<T, kForm>(value);
    store_values(y + at, values);
  });
}

template <class T, int N, GeluForm kForm>
__global__ void __launch_bounds__(kElementThreads)
    backward(const T* x, const T* dy, T* dx, int64_t count) {
  for_own_elements<T, N>(count, [&](auto pack, int64_t at) {
    float values[pack.kCount], gradients[pack.kCount];
    load_values(values, x + at);
    load_values(gradients, dy + at);
    for (int i = 0; i < pack.kCount; ++i) gradients[i] *= derivative_of<T, kForm>(values[i]);
    store_values(dx + at, gradients);
  });
}

}  // namespace

void gelu_forward(Stream& stream, const GeluForward& args) {
  const PackedRows rows{.dtype = args.y.dtype, .begins = {args.x.data, args.y.data}};
  dispatch(rows, [&]<class T, int N>(Pack<T, N>) {
    const auto kernel = args.form == GeluForm::kErf ? forward<T, N, GeluForm::kErf>
                                                    : forward<T, N, GeluForm::kTanh>;
    launch(stream, elements_shape("gelu_forward", args.count, N), kernel, elements_of<T>(args.x),
           elements_of<T>(args.y), args.count);
  });
}

void gelu_backward(Stream& stream, const GeluBackward& args) {
  const PackedRows rows{.dtype = args.dx.dtype,
                        .begins = {args.x.data, args.dy.data, args.dx.data}};
  dispatch(rows, [&]<class T, int N>(Pack<T, N>) {
    const auto kernel = args.form == GeluForm::kErf ? backward<T, N, GeluForm::kErf>
                                                    : backward<T, N, GeluForm::kTanh>;
    launch(stream, elements_shape("gelu_backward", args.count, N), kernel, elements_of<T>(args.x),
           elements_of<T>(args.dy), elements_of<T>(args.dx), args.count);
  });
}

}  // namespace lockstep::kernels::cuda
