#include "kernels/ops/rotary.h"

#include "kernels/device/cuda/launch.cuh"
#include "kernels/ops/cuda_ops.h"
#include "kernels/ops/dispatch.cuh"
#include "kernels/ops/geometry.h"

namespace lockstep::kernels::cuda {

namespace {

struct RotationArgs {
  int64_t row_width;
  int64_t sequence;
  int64_t half;   // HD/2
  int64_t pairs;  // per row: (NH+KVH) * HD/2
  float sign;     // of the sines
};

// Grid: (row, strip of the row's pairs). Each thread has N adjacent pairs of one head.
template <class T, int N>
__global__ void __launch_bounds__(kRowStripThreads)
    rotate_pairs(T* qkv, const float* table, RotationArgs rotation) {
  const int64_t row = blockIdx.x;
  const int64_t pair = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N;
  if (pair >= rotation.pairs) return;
  const int64_t head = pair / rotation.half, i = pair % rotation.half;
  const float* cosines = table + row % rotation.sequence * 2 * rotation.half + i;
  T* low = qkv + row * rotation.row_width + head * 2 * rotation.half + i;
  float a[N], b[N], cosine[N], sine[N];
  load_values(a, low);
  load_values(b, low + rotation.half);
  load_values(cosine, cosines);
  load_values(sine, cosines + rotation.half);
  for (int j = 0; j < N; ++j) {
    const float x = a[j], y = b[j], s = sine[j] * rotation.sign;
    a[j] = x * cosine[j] - y * s;
    b[j] = y * cosine[j] + x * s;
  }
  store_values(low, a);
  store_values(low + rotation.half, b);
}

}  // namespace

void rotary(Stream& stream, const Rotary& args) {
  const AttentionShape& shape = args.shape;
  CHECK(shape.head_dim % 2 == 0);
  const RotationArgs rotation{.row_width = shape.qkv_width(),
                              .sequence = shape.sequence,
                              .half = shape.head_dim / 2,
                              .pairs = (shape.heads + shape.kv_heads) * (shape.head_dim / 2),
                              .sign = args.inverse ? -1.0f : 1.0f};
  // Rows consist of whole heads, and heads of two halves, so packs must fit into a half.
  const PackedRows rows{
      .dtype = args.qkv.dtype, .width = rotation.half, .begins = {args.qkv.data, args.table}};
  dispatch(rows, [&]<class T, int N>(Pack<T, N>) {
    launch(stream, row_strips_shape("rotary", shape.batch * shape.sequence, rotation.pairs, N),
           rotate_pairs<T, N>, elements_of<T>(args.qkv), args.table, rotation);
  });
}

}  // namespace lockstep::kernels::cuda
