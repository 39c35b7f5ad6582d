#include "agent/parallel/step_scalars.h"

namespace lockstep::parallel {

Result<StepScalars> StepScalars::create(kernels::Device device, void* memory) {
  StepScalars scalars;
  scalars.values_ = static_cast<StepValues*>(memory);
  TRY_ASSIGN(scalars.host_,
             kernels::PinnedBuffer::allocate(device, sizeof(StepValues), "a step's losses"));
  return scalars;
}

// Bits of zeroes, as fp32 or not.
void StepScalars::clear(const kernels::OpTable& ops, kernels::Stream& stream) {
  ops.fill(stream, {.out = kernels::View(values_, kernels::DType::kF32),
                    .count = static_cast<int64_t>(sizeof(StepValues) / sizeof(float))});
}

void StepScalars::add_losses(const kernels::OpTable& ops, kernels::Stream& stream,
                             const model::MicroBatch& batch) {
  ops.loss_sum(stream,
               {.losses = batch.losses(), .count = batch.rows(), .sum = &values_->loss_sum});
}

Result<StepValues> StepScalars::read(kernels::Stream& stream) {
  auto* host = static_cast<StepValues*>(host_.data());
  TRY(kernels::copy_bytes(stream, {.to = host, .from = values_, .bytes = sizeof(StepValues)}));
  TRY(stream.synchronize());
  return *host;
}

}  // namespace lockstep::parallel
