#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "agent/parallel/bucket_exchange.h"
#include "agent/parallel/shard_update.h"

namespace lockstep::parallel {

// Data parallelism in which the first rank is the server. Every rank sends its gradients to rank 0
// of the group, bucket by bucket while backward goes on. Rank 0 adds them in the order of ranks,
// updates the parameters, and sends them to the others one by one. It alone has optimizer states.
// In a step of n ranks, with S bytes of gradients, rank 0 receives (n-1) S. It sends (n-1) S of
// parameters, and the squares of the gradients, 224 bytes to each rank.
//
// The copies for products are rounded as those of the step even if the norm is not finite and the
// parameters stay as they are.
class FirstRankExchange final : public BucketExchange {
 public:
  static Result<std::unique_ptr<GradientExchange>> create(const ExchangeOptions& options,
                                                          const ExchangeParts& parts);

  Status finish() override;
  Status update(const UpdateRequest& request) override;
  Status wait() override;
  std::span<const optim::OptimizerState> states() const override;

 private:
  FirstRankExchange(const ExchangeOptions& options, const ExchangeParts& parts,
                    GradientBuckets buckets);
  bool is_stream_ordered() const { return parts().group.device_traits().is_stream_ordered; }
  Status start(const Bucket& bucket) override;
  void add_in_turn(const comm::CommBuffer& own);
  // Sends the values of rank 0 to the others.
  Status distribute(const comm::CommBuffer& values);

  float* staging_;
  std::optional<ShardUpdate> update_;  // on rank 0
  std::vector<comm::Work> pending_;    // of the squares
};

}  // namespace lockstep::parallel
