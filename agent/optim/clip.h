#pragma once

#include <cstdint>
#include <vector>

#include "common/base/result.h"
#include "common/layout/parameters.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep {

// Sums of squares over a gradient arena, in an order that depends on the arena alone. A tied
// embedding counts once, on the stage that counts it (ArenaEntry::counted). The global norm is the
// root of: those of sharded parameters summed over the tensor group, plus those of the whole ones
// (which its peers have too), that summed over the pipeline's stages. ClipScale
// (kernels/ops/clip_scale.h) takes it from there.
class GradientNorm {
 public:
  // `gradients`, the ops and the workspace, kSquaredNormWorkspace bytes of the device, outlive it;
  // without a workspace it allocates one here. Nothing is allocated later.
  static Result<GradientNorm> create(const ModelConfig& config, const ParameterArena& arena,
                                     const float* gradients, Device device, const OpTable& ops,
                                     Workspace workspace = {});

  // Issues what leaves the squares of sharded parameters in squares[0], those of whole ones in
  // squares[1], both memory of the device; waits for nothing.
  void squared(Stream& stream, double* squares);

 private:
  GradientNorm() = default;

  const OpTable* ops_ = nullptr;
  std::vector<FlatTensor> sharded_;
  std::vector<FlatTensor> whole_;
  Workspace workspace_;
  Buffer owned_;  // where the workspace isn't the caller's
};

}  // namespace lockstep
