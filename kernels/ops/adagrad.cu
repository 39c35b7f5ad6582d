#include "kernels/ops/adagrad.h"

#include "kernels/ops/cuda_ops.h"
#include "kernels/ops/update_tensors.cuh"

namespace lockstep::kernels::cuda {

namespace {

struct AdagradRule {
  static constexpr int kStates = 1;
  float learning_rate;
  float epsilon;

  __device__ __forceinline__ void update(float g, float weight_decay, float& p,
                                         float (&states)[kOwnStatesMax]) const {
    g += p * weight_decay;
    states[0] += g * g;
    p -= g * learning_rate / (sqrtf(states[0]) + epsilon);
  }
};

}  // namespace

void adagrad(Stream& stream, const Adagrad& args) {
  update_tensors(stream, "adagrad", AdagradRule{args.learning_rate, args.epsilon}, args);
}

}  // namespace lockstep::kernels::cuda
