#include "kernels/ops/gelu.h"

#include "kernels/device/parallel.h"
#include LOCKSTEP_ISA_HEADER
#include "kernels/ops/cpu_ops.h"
#include "kernels/ops/simd.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

constexpr int64_t kGrain = 16384;

}  // namespace

void gelu_forward(Stream&, const GeluForward& args) {
  const float* x = args.x.f32();
  float* y = args.y.f32();
  parallel_for(args.count, kGrain, [&](Range range) {
    for_vectors(range.end - range.begin, [&](int64_t i, int64_t n) {
      store_n(y + range.begin + i, gelu(load_n(x + range.begin + i, n)), n);
    });
  });
}

void gelu_backward(Stream&, const GeluBackward& args) {
  const float* x = args.x.f32();
  const float* dy = args.dy.f32();
  float* dx = args.dx.f32();
  parallel_for(args.count, kGrain, [&](Range range) {
    for_vectors(range.end - range.begin, [&](int64_t i, int64_t n) {
      const int64_t at = range.begin + i;
      store_n(dx + at, load_n(dy + at, n) * gelu_derivative(load_n(x + at, n)), n);
    });
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
