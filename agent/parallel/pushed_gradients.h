#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "agent/parallel/gradient_exchange.h"
#include "agent/parallel/remote_parameters.h"
#include "common/base/result.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::parallel {

// Gradients for parameter servers. Each one is pushed as soon as backward has completed it, while
// backward goes on. The servers update; the store pulls what they have (PulledStore). The norm of
// the gradients is not known. One thread, on the CPU.
class PushedGradients final : public GradientExchange {
 public:
  // Uses the arena, the parameters and the gradients of the options, and their servers.
  PushedGradients(const ExchangeOptions& options, kernels::Stream& compute);

  void expect_update(const UpdateRequest& request) override;
  void begin_step(const kernels::OpTable& ops) override;
  void enable_reduction() override { is_final_ = true; }
  float* buffer(int64_t id) override;
  Status ready(int64_t id) override;
  Status end_micro_batch() override;
  // The parameters that are pulled from now on have this rank's gradients.
  Status finish() override { return remote_.finish_pushes(); }
  // Initial values (step 0) go to the servers.
  Status parameters_written(int64_t step) override;
  // The servers update.
  Status update(const UpdateRequest&) override { return {}; }
  Status wait() override { return {}; }

  std::span<const optim::OptimizerState> states() const override { return {}; }
  const std::vector<Bucket>& buckets() const override { return no_buckets_; }

 private:
  const ArenaEntry& entry_of(int64_t id) const;

  ParameterArena arena_;
  std::vector<Parameter> table_;  // by id
  const float* parameters_;
  float* gradients_;
  RemoteParameters& remote_;
  kernels::Stream& compute_;
  std::vector<Bucket> no_buckets_;
  int64_t clock_ = 0;
  double learning_rate_ = 0;
  bool is_final_ = false;  // gradients that become ready are final for the step
};

}  // namespace lockstep::parallel
