#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "agent/parallel/gradient_exchange.h"
#include "agent/parallel/rank_store.h"
#include "agent/parallel/shard/sharded_gradients.h"
#include "agent/parallel/shard_update.h"

namespace lockstep::parallel {

// Data parallelism in which each rank updates its shard of the parameters, from the sums of that
// shard's gradients (ShardedGradients). The store brings the new parameters to where they are read.
// Sources: Rajbhandari et al., "ZeRO", 2020; Zhao et al., "PyTorch FSDP", 2023.
class ShardedExchange final : public GradientExchange {
 public:
  struct Options {
    ModelDesign design;
    ShardedGradients::Options gradients;
    optim::OptimizerArenas arrays;
    optim::OptimizerOptions optimizer;
    FarArrays far = {};
    PieceMemory pieces = {};
    const Clock* clock = nullptr;
    std::function<void(bool begins)> observe_waits = {};  // ShardedGradients::observe_waits()
  };
  // All of it outlives the exchange. The group of `parts` is not used.
  static Result<std::unique_ptr<GradientExchange>> create(const Options& options,
                                                          const ExchangeParts& parts,
                                                          const ShardGroups& groups);

  void begin_step(const kernels::OpTable& ops) override { gradients_.begin_step(ops); }
  void enable_reduction() override { gradients_.enable_reduction(); }
  float* buffer(int64_t id) override { return gradients_.buffer(id); }
  Status ready(int64_t id) override { return gradients_.ready(id); }
  Status end_micro_batch() override { return gradients_.end_micro_batch(); }
  Status finish() override { return gradients_.finish(); }
  Status update(const UpdateRequest& request) override;
  Status wait() override;

  std::span<const optim::OptimizerState> states() const override { return update_.states(); }
  OffloadCounts offload_counts() const override { return update_.offload_counts(); }
  Status parameters_written(int64_t step) override {
    update_.refresh_copies(step);
    return {};
  }
  const std::vector<Bucket>& buckets() const override { return buckets_; }

 private:
  ShardedExchange(const ExchangeParts& parts, ShardedGradients gradients, ShardUpdate update,
                  std::vector<Bucket> buckets)
      : parts_(parts),
        gradients_(std::move(gradients)),
        update_(std::move(update)),
        buckets_(std::move(buckets)) {}

  ExchangeParts parts_;
  ShardedGradients gradients_;
  ShardUpdate update_;
  std::vector<Bucket> buckets_;
  std::vector<comm::Work> pending_;  // of the squares
};

}  // namespace lockstep::parallel
