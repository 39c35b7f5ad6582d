#include "kernels/ops/adamw.h"

#include <cmath>

#include "kernels/device/parallel.h"
#include LOCKSTEP_ISA_HEADER
#include "kernels/ops/cpu_ops.h"
#include "kernels/ops/simd.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

constexpr int64_t kGrain = 16384;

inline Vec sqrt_vec(Vec v) {
  for (int i = 0; i < kLanes; ++i) v[i] = __builtin_sqrtf(v[i]);
  return v;
}

// Returns the factor for gradients. If it is not finite, nothing may be written.
float scale_of(const AdamW& args) {
  return args.device_scale ? args.gradient_scale * *args.device_scale : args.gradient_scale;
}

// Coefficients that depend on the step number, and the gradient scale.
struct Coefficients {
  float step_size;     // lr / (1 - b1^step)
  float v_correction;  // 1 / (1 - b2^step)
  float gradient_scale;
};

Coefficients coefficients_of(const AdamW& args) {
  const double step = static_cast<double>(args.step);
  const double first = 1.0 - pow(static_cast<double>(args.beta1), step);
  const double second = 1.0 - pow(static_cast<double>(args.beta2), step);
  return {static_cast<float>(static_cast<double>(args.learning_rate) / first),
          static_cast<float>(1.0 / second), scale_of(args)};
}

void update(const AdamW& args, const Coefficients& c, const AdamWTensor& t, Range range) {
  const float decay = args.learning_rate * t.weight_decay;
  for_vectors(range.end - range.begin, [&](int64_t i, int64_t n) {
    const int64_t at = range.begin + i;
    const Vec g = load_n(t.gradient + at, n) * c.gradient_scale;
    const Vec m = load_n(t.m + at, n) * args.beta1 + g * (1.0f - args.beta1);
    const Vec v = load_n(t.v + at, n) * args.beta2 + g * g * (1.0f - args.beta2);
    const Vec p = load_n(t.parameter + at, n);
    const Vec next =
        p - p * decay - m * c.step_size / (sqrt_vec(v * c.v_correction) + args.epsilon);
    store_n(t.m + at, m, n);
    store_n(t.v + at, v, n);
    store_n(t.parameter + at, next, n);
  });
}

}  // namespace

void adamw(Stream& stream, const AdamW& args) {
  CHECK(args.step >= 1);
  const Coefficients c = coefficients_of(args);
  if (args.device_scale && !__builtin_isfinite(c.gradient_scale)) return;
  int64_t first = 0;
  for (size_t i = 0; i < args.tensors.size(); ++i) {
    const AdamWTensor& tensor = args.tensors[i];
    parallel_for(tensor.count, kGrain, [&](Range range) { update(args, c, tensor, range); });
    if (tensor.copy) {
      cast(stream, {.x = tensor.parameter,
                    .out = tensor.copy,
                    .count = tensor.count,
                    .rounding_seed = args.rounding_seed,
                    .step = args.step,
                    .first = first});
    }
    first += tensor.count;
  }
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
