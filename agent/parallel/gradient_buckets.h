#pragma once

#include <cstdint>
#include <vector>

#include "agent/parallel/buckets.h"
#include "common/base/result.h"
#include "common/layout/parameters.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::parallel {

// The gradients of a step in a flat fp32 arena, in the layout of the parameters, cut into buckets
// that are sent as soon as backward has completed them. One thread.
class GradientBuckets {
 public:
  struct Options {
    ParameterArena arena;
    int64_t bucket_bytes = 0;
    float* gradients = nullptr;  // arena.count floats of the streams' device
  };
  // Both on one device. On the CPU, where work is complete when a call returns, they order nothing.
  struct Streams {
    kernels::Stream& compute;        // gradients are made and read on it
    kernels::Stream& communication;  // nobody else's
  };
  // Memory and streams outlive the buckets. kUnavailable where the device is not.
  static Result<GradientBuckets> create(const Options& options, const Streams& streams);

  // These are the calls of a StepSink (step_sink.h).
  void begin_step(const kernels::OpTable& ops);
  void enable_reduction() { is_final_ = true; }
  void end_micro_batch() { is_final_ = false; }
  float* buffer(int64_t id) const;
  // Returns the bucket that this gradient completes; null: none. Work issued on the communication
  // stream then comes after its gradients.
  Result<const Bucket*> ready(int64_t id);

  // Orders later work on the computing stream after all that was issued on the communication
  // stream. Every bucket is complete.
  Status join_streams();

  const std::vector<Bucket>& all() const { return buckets_; }
  const ParameterArena& arena() const { return arena_; }
  float* gradients() const { return gradients_; }

 private:
  GradientBuckets(const Options& options, const Streams& streams)
      : streams_(streams),
        arena_(options.arena),
        gradients_(options.gradients),
        buckets_(make_buckets(options.arena, options.bucket_bytes)) {}
  size_t bucket_of(int64_t id) const;

  Streams streams_;
  ParameterArena arena_;
  float* gradients_;
  std::vector<Bucket> buckets_;
  kernels::Event complete_;       // a bucket, on the computing stream
  kernels::Event sent_;           // everything, on the communication stream
  bool is_final_ = false;         // gradients that become ready are final for the step
  std::vector<int64_t> missing_;  // gradients that each bucket waits for
};

}  // namespace lockstep::parallel
