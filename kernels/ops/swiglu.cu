#include "kernels/ops/swiglu.h"

#include "kernels/device/cuda/launch.cuh"
#include "kernels/ops/cuda_ops.h"
#include "kernels/ops/dispatch.cuh"
#include "kernels/ops/geometry.h"

namespace lockstep::kernels::cuda {

namespace {

// sigmoid(x) and 1 - sigmoid(x), without cancellation.
struct Sigmoid {
  float s;
  float complement;
};

template <class T>
__device__ __forceinline__ Sigmoid sigmoid(float x) {
  // Clamped so that e^-x stays finite and e * s is not infinity times 0.
  const float e = exp_for<T>(fminf(-x, 87.0f));
  const float s = 1.0f / (1.0f + e);
  return {x != x ? x : x < -87.0f ? 0.0f : s, e * s};
}

// Returns this thread's first column; grid: (row, strip of columns).
template <int N>
__device__ __forceinline__ int64_t own_column() {
  return (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N;
}

template <class T, int N>
__global__ void __launch_bounds__(kRowStripThreads) forward(const T* gate_up, T* y, int64_t width) {
  const int64_t row = blockIdx.x, column = own_column<N>();
  if (column >= width) return;
  const T* gate = gate_up + row * 2 * width + column;
  float g[N], up[N];
  load_values(g, gate);
  load_values(up, gate + width);
  for (int i = 0; i < N; ++i) g[i] *= sigmoid<T>(g[i]).s * up[i];
  store_values(y + row * width + column, g);
}

template <class T, int N>
__global__ void __launch_bounds__(kRowStripThreads)
    backward(const T* gate_up, const T* dy, T* dgate_up, int64_t width) {
  const int64_t row = blockIdx.x, column = own_column<N>();
  if (column >= width) return;
  const int64_t at = row * 2 * width + column;
  float g[N], up[N], d[N];
  load_values(g, gate_up + at);
  load_values(up, gate_up + at + width);
  load_values(d, dy + row * width + column);
  for (int i = 0; i < N; ++i) {
    const Sigmoid sigma = sigmoid<T>(g[i]);
    const float dup = d[i] * g[i] * sigma.s;
    g[i] = d[i] * up[i] * (sigma.s + g[i] * sigma.s * sigma.complement);
    up[i] = dup;
  }
  store_values(dgate_up + at, g);
  store_values(dgate_up + at + width, up);
}

}  // namespace

void swiglu_forward(Stream& stream, const SwigluForward& args) {
  const PackedRows rows{
      .dtype = args.y.dtype, .width = args.width, .begins = {args.gate_up.data, args.y.data}};
  dispatch(rows, [&]<class T, int N>(Pack<T, N>) {
    launch(stream, row_strips_shape("swiglu_forward", args.rows, args.width, N), forward<T, N>,
           elements_of<T>(args.gate_up), elements_of<T>(args.y), args.width);
  });
}

void swiglu_backward(Stream& stream, const SwigluBackward& args) {
  const PackedRows rows{.dtype = args.dgate_up.dtype,
                        .width = args.width,
                        .begins = {args.gate_up.data, args.dy.data, args.dgate_up.data}};
  dispatch(rows, [&]<class T, int N>(Pack<T, N>) {
    launch(stream, row_strips_shape("swiglu_backward", args.rows, args.width, N), backward<T, N>,
           elements_of<T>(args.gate_up), elements_of<T>(args.dy), elements_of<T>(args.dgate_up),
           args.width);
  });
}

}  // namespace lockstep::kernels::cuda
