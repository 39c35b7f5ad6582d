#pragma once

#include <cstdint>

#include "common/base/result.h"

namespace lockstep {

// Where gradients go: to an arena, into buckets that are reduced while backward goes on, to
// servers. The sink hands out the memory that kernels add to, so that nothing is copied. One
// thread.
class GradSink {
 public:
  virtual ~GradSink() = default;

  // The fp32 buffer of the local part of parameter `id`, to be added to (+=): the sink zeroes it at
  // the start of a step, and micro-batches accumulate. Elements whose gradient is zero whatever the
  // input (a bias of attention's keys) are set to zero. Valid until ready(id).
  virtual float* buffer(int64_t id) = 0;

  // All contributions of this stage to the gradient of `id` in this micro-batch have been issued to
  // the stream. Called exactly once for each parameter of the stage and micro-batch, in descending
  // order of id: the tied embedding, which the head begins and the embedding ends, comes last. On a
  // stage that has the head but not the embedding it comes when the stage's backward is over.
  virtual Status ready(int64_t id) = 0;

  // Backward of the micro-batch is over on this stage. Waits for nothing; in which of a step's
  // micro-batches the sink sends, its owner has told it.
  virtual Status end_micro_batch() = 0;
};

}  // namespace lockstep
