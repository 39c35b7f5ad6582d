// The parts of a Composition that concern ranks which share tensors.
#include <memory>
#include <utility>

#include "agent/parallel/compose.h"
#include "agent/parallel/tensor_region.h"
#include "agent/parallel/tensor_sum_exchange.h"

namespace lockstep::parallel {

Status Composition::build_region() {
  if (options_.mesh.tensor == 1) return {};
  TRY_ASSIGN(comm::Communicator* const peers, groups_->of(Axis::kTensor));
  TRY_ASSIGN(shared_tensors_, TensorRegion::create(*peers, stream_));
  shared_tensors_->observe_waits(waits_lapped());
  return {};
}

Status Composition::build_tensor_sums() {
  if (!shared_tensors_) return {};
  TRY_ASSIGN(comm::Communicator* const peers, groups_->of(Axis::kTensor));
  TRY_ASSIGN(exchange_, with_tensor_sums(
                            std::move(exchange_),
                            {.design = options_.design,
                             .arena = shards().arena(),
                             .each_micro_batch = options_.sharding.sharding >= Sharding::kGradients,
                             .splits_rows = options_.sequence_parallel,
                             .observe_waits = backward_waits_lapped()},
                            *peers, stream_));
  return {};
}

}  // namespace lockstep::parallel
