#pragma once

#include <cstdint>
#include <vector>

#include "common/base/result.h"
#include "common/layout/parameters.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::optim {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;  // decoupled; for the parameters marked in the table
  // For rounding the copies: 0 rounds to nearest even, else stochastically (kernels/ops/adamw.h).
  uint64_t rounding_seed = 0;
};

// The flat arenas of one rank, each with arena.count floats in the arena's layout.
struct OptimizerArenas {
  float* parameters = nullptr;
  const float* gradients = nullptr;
  kernels::Bf16* copies = nullptr;  // bf16 copies of the new parameters for products; null: none
  float* first_moments = nullptr;   // initially zero; null: allocated by the optimizer
  float* second_moments = nullptr;
};

struct AdamWStep {
  double learning_rate = 0;
  float gradient_scale = 1.0f;
  const float* device_scale = nullptr;  // multiplied in; from ClipScale, see kernels/ops/adamw.h
  int64_t step = 1;                     // counted from 1
};

// AdamW over a parameter arena (the formula: kernels/ops/adamw.h). The arguments of create() are
// caller-owned and must outlive it.
class AdamWOptimizer {
 public:
  // kUnavailable if memory is short. Moments start as zero.
  static Result<AdamWOptimizer> create(const ModelConfig& config, const ParameterArena& arena,
                                       const OptimizerArenas& arenas, const AdamWOptions& options,
                                       kernels::Device device, const kernels::OpTable& ops);

  // Updates every parameter; allocates nothing.
  void step(kernels::Stream& stream, const AdamWStep& step);
  // Rebuilds the copies after parameters were loaded or received. The result has the same bits as
  // after optimizer step `step`; step 0 means before the first step, rounded to nearest.
  void refresh_copies(kernels::Stream& stream, int64_t step);

  // Returns the moments on the device, in the arena's layout, for checkpoints.
  float* first_moments() { return arenas_.first_moments; }
  float* second_moments() { return arenas_.second_moments; }

 private:
  AdamWOptimizer() = default;

  const kernels::OpTable* ops_ = nullptr;
  AdamWOptions options_;
  OptimizerArenas arenas_;
  kernels::Buffer first_;  // if the moments are not caller-owned
  kernels::Buffer second_;
  std::vector<kernels::AdamWTensor> tensors_;
};

}  // namespace lockstep::optim
