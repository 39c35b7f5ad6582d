#pragma once

#include <cstdint>
#include <vector>

#include "common/base/result.h"
#include "common/layout/parameters.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;  // decoupled; of the parameters that the table marks
  // Of the copies: 0 to nearest even, else stochastically (kernels/ops/adamw.h).
  uint64_t rounding_seed = 0;
};

// The flat arenas of one rank, each of arena.count floats in the arena's layout.
struct OptimizerArenas {
  float* parameters = nullptr;
  const float* gradients = nullptr;
  Bf16* copies = nullptr;          // of the new parameters, for the products; null: none are kept
  float* first_moments = nullptr;  // zeroes at first; null: the optimizer has memory of its own
  float* second_moments = nullptr;
};

struct AdamWStep {
  double learning_rate = 0;
  float gradient_scale = 1.0f;
  const float* device_scale = nullptr;  // times this one, of ClipScale; see kernels/ops/adamw.h
  int64_t step = 1;                     // counted from 1
};

// AdamW over a parameter arena (the formula: kernels/ops/adamw.h). What it is given is the caller's
// and outlives it.
class AdamWOptimizer {
 public:
  // kUnavailable where memory is short. Moments start as zero.
  static Result<AdamWOptimizer> create(const ModelConfig& config, const ParameterArena& arena,
                                       const OptimizerArenas& arenas, const AdamWOptions& options,
                                       Device device, const OpTable& ops);

  // Updates every parameter; allocates nothing.
  void step(Stream& stream, const AdamWStep& step);
  // Makes the copies anew, to the bits that they have after that step (0: before the first one, to
  // nearest), after parameters were loaded or received.
  void refresh_copies(Stream& stream, int64_t step);

  // The moments in the arena's layout, on the device, for checkpoints.
  float* first_moments() { return arenas_.first_moments; }
  float* second_moments() { return arenas_.second_moments; }

 private:
  AdamWOptimizer() = default;

  const OpTable* ops_ = nullptr;
  AdamWOptions options_;
  OptimizerArenas arenas_;
  Buffer first_;  // where the moments aren't the caller's
  Buffer second_;
  std::vector<AdamWTensor> tensors_;
};

}  // namespace lockstep
