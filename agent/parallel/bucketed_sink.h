#pragma once

#include <cstdint>
#include <vector>

#include "agent/comm/communicator.h"
#include "agent/model/grad_sink.h"
#include "agent/parallel/buckets.h"
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
//
// The calls of a step:
// - begin_step()
// - the micro-batches; enable_reduction() before the last one
// - finish()
// - issue work that reads the gradients
// - wait()
// Then the arena holds the sums over micro-batches and ranks, the same bits on every rank.
class BucketedSink final : public model::GradSink {
 public:
  struct Options {
    ParameterArena arena;
    int64_t bucket_bytes = 0;
    float* gradients = nullptr;  // arena.count floats of the streams' device
  };
  // Both on one device. On the CPU, where work is complete when a call returns, they order nothing.
  struct Streams {
    kernels::Stream* compute = nullptr;        // gradients are made and read on it
    kernels::Stream* communication = nullptr;  // nobody else's
  };
  // Gradients, group and streams outlive the sink. The group serves memory of the streams' device.
  // kUnavailable where the device is not.
  static Result<BucketedSink> create(const Options& options, comm::Communicator& group,
                                     const Streams& streams);

  // Zeroes all gradients.
  void begin_step(const kernels::OpTable& ops);
  // Gradients that become ready after this call are final for the step.
  void enable_reduction();
  // Orders later work on the compute stream after every reduction. If the group's operations are
  // stream-ordered (DeviceTraits), returns immediately; otherwise waits for them and returns the
  // first error.
  Status finish();
  // Waits until every bucket is reduced, at most as long as the group's operations may take; the
  // first error of any, after which gradients, and what was made of them, are not to be used. Comes
  // before the host waits for the device: an operation that stands still is told here, by name. A
  // group of one has nothing to wait for.
  Status wait();

  float* buffer(int64_t id) override;
  Status ready(int64_t id) override;
  Status end_micro_batch() override;

  float* gradients() { return gradients_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }

 private:
  BucketedSink(const Options& options, comm::Communicator& group, const Streams& streams);

  comm::Communicator* group_;
  Streams streams_;
  kernels::Event complete_;  // the bucket, on the computing stream
  kernels::Event reduced_;   // all buckets, on the other
  ParameterArena arena_;
  std::vector<Bucket> buckets_;
  float* gradients_;
  bool sending_ = false;
  size_t next_bucket_ = 0;  // that waits for its gradients
  std::vector<comm::Work> works_;
};

}  // namespace lockstep::parallel
