#pragma once

#include <cstdint>
#include <vector>

#include "common/base/result.h"
#include "common/layout/parameters.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep {

// Squares of one rank's gradients. The global norm is the root of: `sharded` summed over the tensor
// group, plus `whole` (which its peers have too), that summed over the pipeline's stages.
struct SquaredNormParts {
  double sharded = 0;
  double whole = 0;
};

// Sums of squares over a gradient arena, in an order that depends on the arena alone. A tied
// embedding counts once, on the stage that counts it (ArenaEntry::counted).
class GradientNorm {
 public:
  // `gradients` and the ops outlive it; it allocates here and never again.
  static Result<GradientNorm> create(const ModelConfig& config, const ParameterArena& arena,
                                     const float* gradients, Device device, const OpTable& ops);

  // Waits for the stream.
  Result<SquaredNormParts> squared(Stream& stream);

 private:
  GradientNorm() = default;

  const OpTable* ops_ = nullptr;
  std::vector<FlatTensor> sharded_;
  std::vector<FlatTensor> whole_;
  Buffer sums_;  // two doubles
  Buffer workspace_;
};

// What gradients are multiplied with so that their global norm is at most clip_norm: 1, or
// clip_norm / (norm + 1e-6) as PyTorch's clip_grad_norm_. clip_norm 0: always 1. A norm that is NaN
// gives NaN, so that a run that diverged is not hidden.
float clip_scale(double norm, double clip_norm);

}  // namespace lockstep
