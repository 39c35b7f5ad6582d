#include "agent/parallel/step_scalars.h"

namespace lockstep {

Result<StepScalars> StepScalars::create(Device device, void* memory) {
  StepScalars scalars;
  scalars.values_ = static_cast<StepValues*>(memory);
  TRY_ASSIGN(scalars.host_, PinnedBuffer::allocate(device, sizeof(StepValues), "a step's losses"));
  return scalars;
}

// Bits of zeroes, as fp32 or not.
void StepScalars::clear(const OpTable& ops, Stream& stream) {
  ops.fill(stream, {.out = View(values_, DType::kF32),
                    .count = static_cast<int64_t>(sizeof(StepValues) / sizeof(float))});
}

void StepScalars::add_losses(const OpTable& ops, Stream& stream, const MicroBatch& batch) {
  ops.loss_sum(stream,
               {.losses = batch.losses(), .count = batch.rows(), .sum = &values_->loss_sum});
}

Result<StepValues> StepScalars::read(Stream& stream) {
  auto* host = static_cast<StepValues*>(host_.data());
  TRY(copy_bytes(stream, {.to = host, .from = values_, .bytes = sizeof(StepValues)}));
  TRY(stream.synchronize());
  return *host;
}

}  // namespace lockstep
