#pragma once

#include <cstdint>
#include <vector>

#include "agent/comm/communicator.h"
#include "agent/parallel/buckets.h"
#include "agent/parallel/step_sink.h"
#include "common/base/result.h"
#include "common/layout/parameters.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::parallel {

// Gradients of data parallelism: a flat fp32 arena in the layout of the parameters, summed over the
// ranks of a group in buckets. A bucket's all-reduce starts as soon as backward has completed the
// bucket, and overlaps with the rest of backward. On a GPU the reductions run on their own stream.
// Events order them after the computation of their bucket, and order later computation after all of
// them. One thread.
// After the step (step_sink.h) the arena holds the sums over micro-batches and ranks, the same bits
// on every rank.
class BucketedSink final : public StepSink {
 public:
  struct Options {
    ParameterArena arena;
    int64_t bucket_bytes = 0;
    float* gradients = nullptr;  // arena.count floats of the streams' device
    // As many bf16 values: gradients travel, and are added, as bf16. Null: as fp32.
    kernels::Bf16* travelling = nullptr;
  };
  // Both on one device. On the CPU, where work is complete when a call returns, they order nothing.
  struct Streams {
    kernels::Stream* compute = nullptr;        // gradients are made and read on it
    kernels::Stream* communication = nullptr;  // nobody else's
  };
  // Gradients, group and streams outlive the sink. The group serves memory of the streams' device.
  // kUnavailable where the device is not.
  static Result<BucketedSink> create(const Options& options, comm::Communicator& group,
                                     const kernels::OpTable& ops, const Streams& streams);

  void begin_step(const kernels::OpTable& ops) override;
  void enable_reduction() override;
  // If the group's operations are stream-ordered (DeviceTraits), returns immediately; otherwise
  // waits for them and returns the first error.
  Status finish() override;
  // Waits at most as long as the group's operations may take. A group of one has nothing to wait
  // for.
  Status wait() override;

  float* buffer(int64_t id) override;
  Status ready(int64_t id) override;
  Status end_micro_batch() override;

  float* gradients() { return gradients_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }

 private:
  BucketedSink(const Options& options, comm::Communicator& group, const kernels::OpTable& ops,
               const Streams& streams);
  // Takes over the sums that travelled as bf16.
  void land();

  comm::Communicator* group_;
  Streams streams_;
  kernels::Event complete_;  // the bucket, on the computing stream
  kernels::Event reduced_;   // all buckets, on the other
  ParameterArena arena_;
  std::vector<Bucket> buckets_;
  float* gradients_;
  kernels::Bf16* travelling_;
  const kernels::OpTable* ops_;
  bool sending_ = false;
  size_t next_bucket_ = 0;  // that waits for its gradients
  std::vector<comm::Work> works_;
};

}  // namespace lockstep::parallel
