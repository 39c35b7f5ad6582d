#include "kernels/ops/sgd.h"

#include LOCKSTEP_ISA_HEADER
#include "kernels/ops/cpu_ops.h"
#include "kernels/ops/simd.h"
#include "kernels/ops/update_tensors.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

void update(const Sgd& args, float scale, const UpdatedTensor& t, Range range) {
  float* buffer = args.momentum > 0.0f ? t.states[0] : nullptr;
  for_vectors(range.end - range.begin, [&](int64_t i, int64_t n) {
    const int64_t at = range.begin + i;
    const Vec p = load_n(t.parameter + at, n);
    const Vec g = load_n(t.gradient + at, n) * scale + p * t.weight_decay;
    Vec direction = g;
    if (buffer) {
      const Vec b = load_n(buffer + at, n) * args.momentum + g;
      store_n(buffer + at, b, n);
      direction = args.nesterov ? g + b * args.momentum : b;
    }
    store_n(t.parameter + at, p - direction * args.learning_rate, n);
  });
}

}  // namespace

void sgd(Stream& stream, const Sgd& args) {
  update_tensors(stream, args, [&](const UpdatedTensor& tensor, float scale, Range range) {
    update(args, scale, tensor, range);
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
