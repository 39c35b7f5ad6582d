#pragma once

#include "agent/model/grad_sink.h"
#include "common/base/result.h"
#include "kernels/ops/op_table.h"

namespace lockstep::parallel {

// A sink whose gradients are reduced over ranks within a step. The calls of a step:
// - begin_step()
// - the micro-batches; enable_reduction() before the last one, or the last one of each chunk
// - finish()
// - issue work that reads the gradients
// - wait()
class StepSink : public model::GradSink {
 public:
  // Zeroes all gradients.
  virtual void begin_step(const kernels::OpTable& ops) = 0;
  // Gradients that become ready from now until end_micro_batch() are final for the step.
  virtual void enable_reduction() = 0;
  // Orders later work on the computing stream after every reduction.
  virtual Status finish() = 0;
  // Waits until everything is reduced. Returns the first error of any reduction, after which
  // gradients, and what was made of them, are not to be used. Comes before the host waits for the
  // device, so that a reduction that stands still is reported by name.
  virtual Status wait() = 0;
};

}  // namespace lockstep::parallel
