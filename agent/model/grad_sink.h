#pragma once

#include <cstdint>

#include "common/base/result.h"

namespace lockstep::model {

// Receives gradients: into an arena, into buckets that are reduced while backward continues, or to
// servers. The sink provides the memory that kernels add to, so that nothing is copied. Used by one
// thread.
class GradSink {
 public:
  virtual ~GradSink() = default;

  // Returns the fp32 buffer for the local part of parameter `id`. Kernels add to it (+=): the sink
  // zeroes it at the start of a step, and micro-batches accumulate. Elements whose gradient is
  // always zero (the bias of attention's keys) are set to zero. Valid until ready(id).
  virtual float* buffer(int64_t id) = 0;

  // Reports that all of this stage's contributions to the gradient of `id` in this micro-batch have
  // been issued to the stream. Called exactly once per parameter of the stage and micro-batch, by
  // each backward in descending order of id. A tied embedding, to which both the head and the
  // embedding contribute, is last. A chunk with the head but without the embedding reports it when
  // its backward is over.
  virtual Status ready(int64_t id) = 0;

  // Reports that backward of the micro-batch is over on this stage, or on one of its chunks. Does
  // not wait. The sink's owner tells it in which backwards of a step to send.
  virtual Status end_micro_batch() = 0;
};

}  // namespace lockstep::model
