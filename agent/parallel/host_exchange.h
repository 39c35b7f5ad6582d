#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "agent/parallel/bucket_exchange.h"
#include "agent/parallel/shard_update.h"
#include "agent/parallel/shared_segment.h"
#include "kernels/device/host_pin.h"

namespace lockstep::parallel {

// Data parallelism in which the host's memory is the server, for ranks of one node. Each rank
// copies its gradients to a place of its own in shared memory, bucket by bucket while backward goes
// on. Once all are there, each rank does its part of the server's work: it adds up the gradients of
// a range in the order of ranks, and updates the range with the CPU. Then every rank copies all
// parameters to its own memory. The optimizer's states are in the shared memory too, once. In a
// step each rank writes S bytes, the size of the gradients, and reads S bytes.
//
// Ranks wait for one another in two barriers of a step. The copies for products are rounded as
// those of the step even if the norm is not finite and the parameters stay as they are.
class HostExchange final : public BucketExchange {
 public:
  static Result<std::unique_ptr<GradientExchange>> create(const ExchangeOptions& options,
                                                          const ExchangeParts& parts);

  Status parameters_written(int64_t step) override;
  Status finish() override;
  Status update(const UpdateRequest& request) override;
  Status wait() override { return {}; }

  std::span<const optim::OptimizerState> states() const override { return update_->states(); }
  SharedTraffic shared_traffic() const override { return traffic_; }

 private:
  HostExchange(const ExchangeOptions& options, const ExchangeParts& parts, GradientBuckets buckets,
               SharedSegment segment);
  Status make_update(const ExchangeOptions& options);
  Status start(const Bucket& bucket) override;
  // Returns the n-th block of the segment: parameters, states, gradients of each rank.
  float* block(size_t index) const;
  float* gradients_of(int rank) const;
  // Adds up the gradients of this rank's range, in place of rank 0's.
  void add_up();
  // Adds up the squares of all ranks' ranges.
  Status add_squares();

  StateLayout::ShardRange range_;
  size_t first_gradients_;  // block
  SharedSegment segment_;
  kernels::HostPin pin_;  // of the segment
  kernels::Stream host_;  // the CPU's
  std::optional<ShardUpdate> update_;
  bool has_parameters_ = false;
  StepValues values_;  // of the update, in the host's memory
  SharedTraffic traffic_;
};

}  // namespace lockstep::parallel
