#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "agent/comm/communicator.h"
#include "agent/parallel/gradient_buckets.h"
#include "agent/parallel/step_sink.h"
#include "common/base/result.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::parallel {

// Gradients of data parallelism, summed over the ranks of a group in buckets. A bucket's all-reduce
// starts as soon as backward has completed the bucket, and overlaps with the rest of backward. On a
// GPU the reductions run on their own stream. Events order them after the computation of their
// bucket, and order later computation after all of them. One thread.
// After the step (step_sink.h) the arena holds the sums over micro-batches and ranks, the same bits
// on every rank.
class BucketedSink final : public StepSink {
 public:
  struct Options {
    GradientBuckets::Options buckets;
    // As many bf16 values as gradients: they travel, and are added, as bf16. Null: as fp32.
    kernels::Bf16* travelling = nullptr;
  };
  // Memory, group and streams outlive the sink. The group serves memory of the streams' device.
  // kUnavailable where the device is not.
  static Result<BucketedSink> create(const Options& options, comm::Communicator& group,
                                     const kernels::OpTable& ops,
                                     const GradientBuckets::Streams& streams);

  void begin_step(const kernels::OpTable& ops) override;
  void enable_reduction() override { buckets_.enable_reduction(); }
  // If the group's operations are stream-ordered (DeviceTraits), returns immediately; otherwise
  // waits for them and returns the first error.
  Status finish() override;
  // Waits at most as long as the group's operations may take. A group of one has nothing to wait
  // for.
  Status wait() override;

  float* buffer(int64_t id) override { return buckets_.buffer(id); }
  Status ready(int64_t id) override;
  Status end_micro_batch() override;

  const std::vector<Bucket>& buckets() const { return buckets_.all(); }

 private:
  BucketedSink(GradientBuckets buckets, kernels::Bf16* travelling, comm::Communicator& group,
               const kernels::OpTable& ops, kernels::Stream& communication)
      : buckets_(std::move(buckets)),
        travelling_(travelling),
        group_(&group),
        ops_(&ops),
        communication_(&communication) {}
  void start(const Bucket& bucket);
  // Takes over the sums that travelled as bf16.
  void land();

  GradientBuckets buckets_;
  kernels::Bf16* travelling_;
  comm::Communicator* group_;
  const kernels::OpTable* ops_;
  kernels::Stream* communication_;
  std::vector<comm::Work> works_;
};

}  // namespace lockstep::parallel
