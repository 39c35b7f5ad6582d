#include "agent/parallel/step_scalars.h"

namespace lockstep::parallel {

// Bits of zeroes, as fp32 or not.
void StepScalars::clear(const kernels::OpTable& ops, kernels::Stream& stream) {
  ops.fill(stream, {.out = kernels::View(values_, kernels::DType::kF32),
                    .count = static_cast<int64_t>(sizeof(StepValues) / sizeof(float))});
}

void StepScalars::add_results(const kernels::OpTable& ops, kernels::Stream& stream,
                              const model::MicroBatch& batch) {
  const model::MicroBatch::Terms losses = batch.losses();
  if (losses.count == 0) return;
  ops.loss_sum(stream, {.losses = losses.values, .count = losses.count, .sum = &values_->loss_sum});
  const model::MicroBatch::Terms hits = batch.hits();
  if (hits.count == 0) return;
  ops.loss_sum(stream, {.losses = hits.values, .count = hits.count, .sum = &values_->right});
  const model::MicroBatch::Terms top_hits = batch.top_hits();
  if (top_hits.count == 0) return;
  ops.loss_sum(stream,
               {.losses = top_hits.values, .count = top_hits.count, .sum = &values_->top_right});
}

Result<StepValues> StepScalars::read(kernels::Stream& stream) {
  TRY(kernels::copy_bytes(stream, {.to = host_, .from = values_, .bytes = sizeof(StepValues)}));
  TRY(stream.synchronize());
  return *host_;
}

}  // namespace lockstep::parallel
