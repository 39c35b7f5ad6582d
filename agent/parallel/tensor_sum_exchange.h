#pragma once

#include <functional>
#include <memory>

#include "agent/comm/communicator.h"
#include "agent/parallel/gradient_exchange.h"
#include "common/base/result.h"
#include "common/layout/model_design.h"
#include "common/layout/parameters.h"
#include "kernels/device/device.h"

namespace lockstep::parallel {

struct TensorSumOptions {
  ModelDesign design;
  ParameterArena arena;  // of the rank; its shard is the rank's place in the tensor group
  // Whether the exchange reduces the gradients of each micro-batch by themselves. Otherwise they
  // accumulate, and only those of a step's last micro-batch are final.
  bool each_micro_batch = false;
  // Whether each rank of the tensor group keeps a part of the rows
  // (ActivationOptions::splits_rows).
  bool splits_rows = false;
  // Called around each wait of the host: before it with true, after it with false.
  std::function<void(bool begins)> observe_waits = {};
};

// Returns an exchange that adds up what several ranks of the tensor group compute of one gradient,
// before the inner exchange reduces it over data-parallel ranks: that of elements which some of
// them have (shared_run()), and that of a part of the rows (Parameter::works_on_rows). These ranks
// get the same bits. The sums of a parameter are made when its gradient is ready, in the order of
// the computing stream. Returns the inner exchange if there is nothing to add up. All ranks of the
// tensor group make this call. The group serves memory of the stream's device; the stream outlives
// the exchange.
Result<std::unique_ptr<GradientExchange>> with_tensor_sums(std::unique_ptr<GradientExchange> inner,
                                                           const TensorSumOptions& options,
                                                           comm::Communicator& tensor_group,
                                                           kernels::Stream& compute);

}  // namespace lockstep::parallel
