#pragma once

#include <vector>

#include "agent/optim/optimizer.h"
#include "common/layout/model_design.h"
#include "common/layout/parameters.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::optim {

// Sums the squares of the gradients that one rank counts. Over all ranks with the same place on the
// data axis, each element of the model counts once:
// - a tied embedding on the stage that counts it (ArenaEntry::counts_in_norm)
// - what several ranks along the tensor axis hold, on the first of them (owned_runs())
// - padding rows and the arena's gaps never
// The sum over those ranks (parallel::add_up_squares) is the square of the norm. It has the same
// bits however the model is split. ClipScale (kernels/ops/clip_scale.h) continues from there.
class GradientNorm {
 public:
  // Counts the arrays' slices. The gradients and the ops must outlive it.
  static GradientNorm create(const ModelDesign& design, const ParameterArena& arena,
                             const OptimizerArenas& arrays, const kernels::OpTable& ops);

  // Enqueues work that adds the squares to *sum, in device memory. Does not wait.
  void add_squares(kernels::Stream& stream, kernels::SquareSum* sum) const;

 private:
  GradientNorm() = default;

  const kernels::OpTable* ops_ = nullptr;
  std::vector<kernels::FlatTensor> counted_;
};

}  // namespace lockstep::optim
