#pragma once

#include <cstdint>
#include <vector>

#include "common/base/result.h"
#include "common/layout/parameters.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::optim {

// Sums the squares over a gradient arena, in an order that depends only on the arena. A tied
// embedding counts once, on the stage that counts it (ArenaEntry::counts_in_norm).
//
// The square of the global norm is computed in two steps. First, add the sum for sharded
// parameters, reduced over the tensor group, to the sum for whole parameters (the same on all
// tensor peers). Then reduce the result over the pipeline's stages. ClipScale
// (kernels/ops/clip_scale.h) continues from there.
class GradientNorm {
 public:
  // `gradients`, the ops and the workspace (kSquaredNormWorkspace bytes on the device) must outlive
  // it. Without a workspace, allocates one here. Nothing is allocated later.
  static Result<GradientNorm> create(const ModelConfig& config, const ParameterArena& arena,
                                     const float* gradients, kernels::Device device,
                                     const kernels::OpTable& ops,
                                     kernels::Workspace workspace = {});

  // Enqueues work that writes the sum for sharded parameters to squares[0] and for whole ones to
  // squares[1], both in device memory. Does not wait.
  void squared(kernels::Stream& stream, double* squares);

 private:
  GradientNorm() = default;

  const kernels::OpTable* ops_ = nullptr;
  std::vector<kernels::FlatTensor> sharded_;
  std::vector<kernels::FlatTensor> whole_;
  kernels::Workspace workspace_;
  kernels::Buffer owned_;  // if the workspace is not caller-owned
};

}  // namespace lockstep::optim
