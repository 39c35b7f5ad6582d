#include "kernels/ops/adamw.h"

#include <cmath>

#include "kernels/ops/cuda_ops.h"
#include "kernels/ops/update_tensors.cuh"

namespace lockstep::kernels::cuda {

namespace {

struct AdamWRule {
  static constexpr int kStates = 2;
  float learning_rate;
  float beta1;
  float beta2;
  float epsilon;
  float step_size;     // lr / (1 - b1^step)
  float v_correction;  // 1 / (1 - b2^step)

  __device__ __forceinline__ void update(float g, float weight_decay, float& p,
                                         float (&states)[kOwnStatesMax]) const {
    const float decay = learning_rate * weight_decay;
    const float m = states[0] * beta1 + g * (1.0f - beta1);
    const float v = states[1] * beta2 + g * g * (1.0f - beta2);
    p = p - p * decay - m * step_size / (sqrtf(v * v_correction) + epsilon);
    states[0] = m;
    states[1] = v;
  }
};

AdamWRule rule_of(const AdamW& args) {
  const double step = static_cast<double>(args.step);
  const double first = 1.0 - std::pow(static_cast<double>(args.beta1), step);
  const double second = 1.0 - std::pow(static_cast<double>(args.beta2), step);
  return {.learning_rate = args.learning_rate,
          .beta1 = args.beta1,
          .beta2 = args.beta2,
          .epsilon = args.epsilon,
          .step_size = static_cast<float>(static_cast<double>(args.learning_rate) / first),
          .v_correction = static_cast<float>(1.0 / second)};
}

}  // namespace

void adamw(Stream& stream, const AdamW& args) {
  CHECK(args.step >= 1);
  update_tensors(stream, "adamw", rule_of(args), args);
}

}  // namespace lockstep::kernels::cuda
