#include "agent/parallel/step_scalars.h"

namespace lockstep::parallel {

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
  TRY(kernels::copy_bytes(stream, {.to = host_, .from = values_, .bytes = sizeof(StepValues)}));
  TRY(stream.synchronize());
  return *host_;
}

}  // namespace lockstep::parallel
