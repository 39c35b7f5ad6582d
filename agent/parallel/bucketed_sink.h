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

namespace lockstep {

// Gradients of data parallelism: a flat fp32 arena in the layout of the parameters, summed over the
// ranks of a group in buckets, each as soon as backward has completed it and beside what backward
// does then. On a GPU reductions have a stream of their own: an event of the stream that computes
// lets a bucket's begin, and one of theirs lets that stream go on behind all of them. One thread.
//
// A step: begin_step(); the micro-batches, before the last of which send_from_now_on(); finish();
// what reads the gradients is issued; wait(). Then the arena holds the sums over micro-batches and
// ranks, the same bits on every rank.
class BucketedSink final : public GradSink {
 public:
  struct Options {
    ParameterArena arena;
    int64_t bucket_bytes = 0;
    float* gradients = nullptr;  // arena.count floats of the streams' device
  };
  // Of one device; on the CPU, where all is done when a call returns, they order nothing.
  struct Streams {
    Stream* compute = nullptr;        // gradients are made and read on it
    Stream* communication = nullptr;  // nobody else's
  };
  // Gradients, group and streams outlive the sink. The group serves memory of the streams' device.
  // kUnavailable where the device is not.
  static Result<BucketedSink> create(const Options& options, Communicator& group,
                                     const Streams& streams);

  // Zeroes all gradients.
  void begin_step(const OpTable& ops);
  // What becomes ready after this call is final for the step.
  void send_from_now_on();
  // What is issued on the computing stream from now on comes behind every reduction. Where the
  // group's operations have their place on a stream (DeviceTraits) that is all; else it waits for
  // them and returns the first error of any.
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
  BucketedSink(const Options& options, Communicator& group, const Streams& streams);

  Communicator* group_;
  Streams streams_;
  Event complete_;  // the bucket, on the computing stream
  Event reduced_;   // all buckets, on the other
  ParameterArena arena_;
  std::vector<Bucket> buckets_;
  float* gradients_;
  bool sending_ = false;
  size_t next_bucket_ = 0;  // that waits for its gradients
  std::vector<Work> works_;
};

}  // namespace lockstep
