#include "kernels/ops/ftrl.h"

#include "kernels/ops/cuda_ops.h"
#include "kernels/ops/update_tensors.cuh"

namespace lockstep::kernels::cuda {

namespace {

struct FtrlRule {
  static constexpr int kStates = 2;
  float rate;  // 1 / learning_rate
  float beta;
  float l1;

  __device__ __forceinline__ void update(float g, float weight_decay, float& p,
                                         float (&states)[kOwnStatesMax]) const {
    const float before = sqrtf(states[1]);
    states[1] += g * g;
    const float root = sqrtf(states[1]);
    states[0] += g - (root - before) * rate * p;
    const float z = states[0];
    const float pull = z < 0.0f ? -l1 : l1;
    p = fabsf(z) <= l1 ? 0.0f : (pull - z) / ((root + beta) * rate + weight_decay);
  }
};

}  // namespace

void ftrl(Stream& stream, const Ftrl& args) {
  CHECK(args.tensors.empty() || args.learning_rate > 0.0f);
  update_tensors(stream, "ftrl", FtrlRule{1.0f / args.learning_rate, args.beta, args.l1}, args);
}

}  // namespace lockstep::kernels::cuda
