#include "kernels/ops/ftrl.h"

#include LOCKSTEP_ISA_HEADER
#include "kernels/ops/cpu_ops.h"
#include "kernels/ops/simd.h"
#include "kernels/ops/update_tensors.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

void update(const Ftrl& args, float scale, const UpdatedTensor& t, Range range) {
  const float rate = 1.0f / args.learning_rate;
  const Vec l1 = all(args.l1);
  for_vectors(range.end - range.begin, [&](int64_t i, int64_t n) {
    const int64_t at = range.begin + i;
    const Vec g = load_n(t.gradient + at, n) * scale;
    const Vec before = load_n(t.states[1] + at, n);
    const Vec squares = before + g * g;
    const Vec root = sqrt_vec(squares);
    const Vec p = load_n(t.parameter + at, n);
    const Vec z = load_n(t.states[0] + at, n) + g - (root - sqrt_vec(before)) * rate * p;
    const Vec size = z < Vec{} ? -z : z;
    const Vec pull = z < Vec{} ? -l1 : l1;
    const Vec next = (pull - z) / ((root + args.beta) * rate + t.weight_decay);
    store_n(t.states[0] + at, z, n);
    store_n(t.states[1] + at, squares, n);
    store_n(t.parameter + at, size <= l1 ? Vec{} : next, n);
  });
}

}  // namespace

void ftrl(Stream& stream, const Ftrl& args) {
  CHECK(args.tensors.empty() || args.learning_rate > 0.0f);
  update_tensors(stream, args, [&](const UpdatedTensor& tensor, float scale, Range range) {
    update(args, scale, tensor, range);
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
