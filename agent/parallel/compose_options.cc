#include "agent/parallel/compose_options.h"

namespace lockstep::parallel {

model::GptOptions model_options(const ComposeOptions& options,
                                const model::AttentionChoice& attention) {
  return {.config = options.config,
          .stage = whole_model(options.config),
          .precision = options.precision,
          .recompute = options.recompute,
          .attention = attention};
}

ActivationShape micro_batch_shape(const ComposeOptions& options, PassMode mode) {
  return {options.micro_batch, options.sequence, mode};
}

}  // namespace lockstep::parallel
