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
// ranks of a group in buckets, each as soon as backward has completed it. One thread.
//
// A step: begin_step(); the micro-batches, before the last of which send_from_now_on(); finish().
// Then the arena holds the sums over micro-batches and ranks, the same bits on every rank.
class BucketedSink final : public GradSink {
 public:
  struct Options {
    ParameterArena arena;
    int64_t bucket_bytes = 0;
    float* gradients = nullptr;  // arena.count floats of the stream's device
  };
  // Gradients, group and stream outlive the sink. The group serves memory of the stream's device;
  // an all-reduce comes behind what the stream has been given before. What the stream is given
  // after goes on beside it where the host carries it out; NCCL has its place on the stream itself.
  BucketedSink(const Options& options, Communicator& group, Stream& stream);

  // Zeroes all gradients.
  void begin_step(const OpTable& ops);
  // What becomes ready after this call is final for the step.
  void send_from_now_on();
  // Waits until every bucket is reduced; the first error of any. A group of one has nothing to wait
  // for.
  Status finish();

  float* buffer(int64_t id) override;
  Status ready(int64_t id) override;
  Status end_micro_batch() override;

  float* gradients() { return gradients_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }

 private:
  Communicator* group_;
  Stream* stream_;
  ParameterArena arena_;
  std::vector<Bucket> buckets_;
  float* gradients_;
  bool sending_ = false;
  size_t next_bucket_ = 0;  // that waits for its gradients
  std::vector<Work> works_;
};

}  // namespace lockstep
