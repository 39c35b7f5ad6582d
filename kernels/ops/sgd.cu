#include "kernels/ops/sgd.h"

#include "kernels/ops/cuda_ops.h"
#include "kernels/ops/update_tensors.cuh"

namespace lockstep::kernels::cuda {

namespace {

template <bool kHasBuffer>
struct SgdRule {
  static constexpr int kStates = kHasBuffer ? 1 : 0;
  float learning_rate;
  float momentum;
  bool nesterov;

  __device__ __forceinline__ void update(float g, float weight_decay, float& p,
                                         float (&states)[kOwnStatesMax]) const {
    g += p * weight_decay;
    float direction = g;
    if constexpr (kHasBuffer) {
      states[0] = states[0] * momentum + g;
      direction = nesterov ? g + states[0] * momentum : states[0];
    }
    p -= direction * learning_rate;
  }
};

template <bool kHasBuffer>
void run(Stream& stream, const Sgd& args) {
  const SgdRule<kHasBuffer> rule{args.learning_rate, args.momentum, args.nesterov};
  update_tensors(stream, "sgd", rule, args);
}

}  // namespace

void sgd(Stream& stream, const Sgd& args) {
  args.momentum > 0.0f ? run<true>(stream, args) : run<false>(stream, args);
}

}  // namespace lockstep::kernels::cuda
