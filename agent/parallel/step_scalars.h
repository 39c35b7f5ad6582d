#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "agent/model/model.h"
#include "common/base/result.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::parallel {

// The scalars that a step computes, in addition to its tensors; in device memory.
struct StepValues {
  double loss_sum = 0;              // of this rank's terms of the loss
  double right = 0;                 // right answers of an evaluation
  double top_right = 0;             // those among the kTopAnswers most likely ones
  kernels::SquareSum squares = {};  // of gradients (GradientNorm)
  float scale = 0;                  // of the update (ClipScale)

  // The norm of all gradients, before clipping.
  double norm() const { return std::sqrt(kernels::value_of(squares)); }
};

// Lets operations add to them and the host read them once, when the step is over: nothing in
// between waits for the device. One thread.
class StepScalars {
 public:
  // kStepScalarBytes each of the device and of page-locked memory, which outlive it.
  struct Memory {
    void* device = nullptr;
    void* pinned = nullptr;
  };
  explicit StepScalars(const Memory& memory)
      : values_(static_cast<StepValues*>(memory.device)),
        host_(static_cast<StepValues*>(memory.pinned)) {}

  // These issue.
  void clear(const kernels::OpTable& ops, kernels::Stream& stream);
  // Adds the losses and right answers of a micro-batch whose backward (or evaluating forward) was
  // issued; nothing on a stage without them.
  void add_results(const kernels::OpTable& ops, kernels::Stream& stream,
                   const model::MicroBatch& batch);
  StepValues* on_device() { return values_; }

  // Waits until all that was issued on the stream is done.
  Result<StepValues> read(kernels::Stream& stream);

 private:
  StepValues* values_;
  StepValues* host_;
};
inline constexpr size_t kStepScalarBytes = sizeof(StepValues);

}  // namespace lockstep::parallel
