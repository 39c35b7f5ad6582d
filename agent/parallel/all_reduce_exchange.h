#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "agent/parallel/bucketed_sink.h"
#include "agent/parallel/gradient_exchange.h"
#include "agent/parallel/shard_update.h"

namespace lockstep::parallel {

// Data parallelism in which every rank gets the sums of all gradients (BucketedSink) and makes the
// same update.
class AllReduceExchange final : public GradientExchange {
 public:
  static Result<std::unique_ptr<GradientExchange>> create(const ExchangeOptions& options,
                                                          const ExchangeParts& parts);

  void begin_step(const kernels::OpTable& ops) override { sink_.begin_step(ops); }
  void enable_reduction() override { sink_.enable_reduction(); }
  float* buffer(int64_t id) override { return sink_.buffer(id); }
  Status ready(int64_t id) override { return sink_.ready(id); }
  Status end_micro_batch() override { return sink_.end_micro_batch(); }
  Status finish() override { return sink_.finish(); }
  Status update(const UpdateRequest& request) override;
  Status wait() override;

  std::span<const optim::OptimizerState> states() const override { return update_.states(); }
  OffloadCounts offload_counts() const override { return update_.offload_counts(); }
  const std::vector<Bucket>& buckets() const override { return sink_.buckets(); }

 private:
  AllReduceExchange(const ExchangeParts& parts, BucketedSink sink, ShardUpdate update)
      : parts_(parts), sink_(std::move(sink)), update_(std::move(update)) {}

  ExchangeParts parts_;
  BucketedSink sink_;
  ShardUpdate update_;
  std::vector<comm::Work> pending_;  // of the squares
};

}  // namespace lockstep::parallel
