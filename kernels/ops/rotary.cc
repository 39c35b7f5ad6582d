#include "kernels/ops/rotary.h"

#include "kernels/device/parallel.h"
#include LOCKSTEP_ISA_HEADER
#include "kernels/ops/cpu_ops.h"
#include "kernels/ops/simd.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

constexpr int64_t kGrain = 16384;  // number of elements that are worth a thread

// Rotates one head. `low` is its lower half; `sign` is the sign of the sines.
void rotate_head(float* low, const float* table, int64_t half, float sign) {
  float* high = low + half;
  for_vectors(half, [&](int64_t i, int64_t n) {
    const Vec a = load_n(low + i, n), b = load_n(high + i, n);
    const Vec cosine = load_n(table + i, n), sine = load_n(table + half + i, n) * sign;
    store_n(low + i, a * cosine - b * sine, n);
    store_n(high + i, b * cosine + a * sine, n);
  });
}

}  // namespace

void rotary(Stream&, const Rotary& args) {
  const AttentionShape& shape = args.shape;
  CHECK(shape.head_dim % 2 == 0);
  float* qkv = args.qkv.f32();
  const float sign = args.inverse ? -1.0f : 1.0f;
  const int64_t row_width = shape.qkv_width(), heads = shape.heads + shape.kv_heads;
  const int64_t grain = max_of(1, kGrain / max_of(1, row_width));
  parallel_for(shape.batch * shape.sequence, grain, [&](Range range) {
    for (int64_t row = range.begin; row < range.end; ++row) {
      const float* table = args.table + row % shape.sequence * shape.head_dim;
      for (int64_t head = 0; head < heads; ++head) {
        rotate_head(qkv + row * row_width + head * shape.head_dim, table, shape.head_dim / 2, sign);
      }
    }
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
