#include "kernels/ops/adamw.h"

#include <cmath>

#include LOCKSTEP_ISA_HEADER
#include "kernels/ops/cpu_ops.h"
#include "kernels/ops/simd.h"
#include "kernels/ops/update_tensors.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

// Coefficients that depend on the step number.
struct Coefficients {
  float step_size;     // lr / (1 - b1^step)
  float v_correction;  // 1 / (1 - b2^step)
};

Coefficients coefficients_of(const AdamW& args) {
  const double step = static_cast<double>(args.step);
  const double first = 1.0 - pow(static_cast<double>(args.beta1), step);
  const double second = 1.0 - pow(static_cast<double>(args.beta2), step);
  return {static_cast<float>(static_cast<double>(args.learning_rate) / first),
          static_cast<float>(1.0 / second)};
}

void update(const AdamW& args, const Coefficients& c, float scale, const UpdatedTensor& t,
            Range range) {
  const float decay = args.learning_rate * t.weight_decay;
  for_vectors(range.end - range.begin, [&](int64_t i, int64_t n) {
    const int64_t at = range.begin + i;
    const Vec g = load_n(t.gradient + at, n) * scale;
    const Vec m = load_n(t.states[0] + at, n) * args.beta1 + g * (1.0f - args.beta1);
    const Vec v = load_n(t.states[1] + at, n) * args.beta2 + g * g * (1.0f - args.beta2);
    const Vec p = load_n(t.parameter + at, n);
    const Vec next =
        p - p * decay - m * c.step_size / (sqrt_vec(v * c.v_correction) + args.epsilon);
    store_n(t.states[0] + at, m, n);
    store_n(t.states[1] + at, v, n);
    store_n(t.parameter + at, next, n);
  });
}

}  // namespace

void adamw(Stream& stream, const AdamW& args) {
  CHECK(args.step >= 1);
  const Coefficients c = coefficients_of(args);
  update_tensors(stream, args, [&](const UpdatedTensor& tensor, float scale, Range range) {
    update(args, c, scale, tensor, range);
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
