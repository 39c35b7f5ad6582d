#include "kernels/ops/swiglu.h"

#include "kernels/device/parallel.h"
#include LOCKSTEP_ISA_HEADER
#include "kernels/ops/cpu_ops.h"
#include "kernels/ops/simd.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

constexpr int64_t kGrain = 16384;  // number of elements that are worth a thread

int64_t row_grain(int64_t width) {
  return max_of(1, kGrain / max_of(1, width));
}

// sigmoid(x) and 1 - sigmoid(x), without cancellation; 0 and 1 below -87.
struct Sigmoid {
  Vec s;
  Vec complement;
};

inline Sigmoid sigmoid(Vec x) {
  const Vec limit = all(87.0f);  // keeps e^-x finite, so that e * s is not infinity times 0
  const Vec e = exp_bounded(-x > limit ? limit : -x);
  const Vec s = 1.0f / (1.0f + e);
  return {x < -limit ? Vec{} : s, e * s};
}

void backward_row(const float* gate, const float* up, const float* dy, float* dgate, float* dup,
                  int64_t width) {
  for_vectors(width, [&](int64_t i, int64_t n) {
    const Vec g = load_n(gate + i, n), u = load_n(up + i, n), d = load_n(dy + i, n);
    const Sigmoid sigma = sigmoid(g);
    store_n(dgate + i, d * u * (sigma.s + g * sigma.s * sigma.complement), n);
    store_n(dup + i, d * g * sigma.s, n);
  });
}

}  // namespace

void swiglu_forward(Stream&, const SwigluForward& args) {
  const float* gate_up = args.gate_up.f32();
  float* y = args.y.f32();
  const int64_t width = args.width;
  parallel_for(args.rows, row_grain(width), [&](Range range) {
    for (int64_t row = range.begin; row < range.end; ++row) {
      const float* gate = gate_up + row * 2 * width;
      for_vectors(width, [&](int64_t i, int64_t n) {
        const Vec g = load_n(gate + i, n), u = load_n(gate + width + i, n);
        store_n(y + row * width + i, g * sigmoid(g).s * u, n);
      });
    }
  });
}

void swiglu_backward(Stream&, const SwigluBackward& args) {
  const float* gate_up = args.gate_up.f32();
  const float* dy = args.dy.f32();
  float* dgate_up = args.dgate_up.f32();
  const int64_t width = args.width;
  parallel_for(args.rows, row_grain(width), [&](Range range) {
    for (int64_t row = range.begin; row < range.end; ++row) {
      const float* gate = gate_up + row * 2 * width;
      float* dgate = dgate_up + row * 2 * width;
      backward_row(gate, gate + width, dy + row * width, dgate, dgate + width, width);
    }
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
