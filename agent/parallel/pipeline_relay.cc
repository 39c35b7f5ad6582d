#include "agent/parallel/pipeline_relay.h"

namespace lockstep::parallel {

Status PipelineRelay::receive(model::MicroBatch& batch) {
  TRY(links_.activations_in->announce({batch.input_count()}));
  return links_.activations_in->receive(batch.stage_input());
}

Status PipelineRelay::send(const model::MicroBatch& batch) {
  return links_.activations_out->send(batch.stage_output(), batch.output_count());
}

Result<int32_t> PipelineRelay::share(int32_t token) {
  TRY(stages_.broadcast({.data = &token, .count = 1, .type = comm::DataType::kI32},
                        stages_.size() - 1));
  return token;
}

}  // namespace lockstep::parallel
