#include "kernels/ops/adagrad.h"

#include LOCKSTEP_ISA_HEADER
#include "kernels/ops/cpu_ops.h"
#include "kernels/ops/simd.h"
#include "kernels/ops/update_tensors.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

void update(const Adagrad& args, float scale, const UpdatedTensor& t, Range range) {
  float* sum = t.states[0];
  for_vectors(range.end - range.begin, [&](int64_t i, int64_t n) {
    const int64_t at = range.begin + i;
    const Vec p = load_n(t.parameter + at, n);
    const Vec g = load_n(t.gradient + at, n) * scale + p * t.weight_decay;
    const Vec s = load_n(sum + at, n) + g * g;
    store_n(sum + at, s, n);
    store_n(t.parameter + at, p - g * args.learning_rate / (sqrt_vec(s) + args.epsilon), n);
  });
}

}  // namespace

void adagrad(Stream& stream, const Adagrad& args) {
  update_tensors(stream, args, [&](const UpdatedTensor& tensor, float scale, Range range) {
    update(args, scale, tensor, range);
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
