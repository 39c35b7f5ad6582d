#include "agent/parallel/compose_options.h"

namespace lockstep::parallel {

model::ModelOptions model_options(const ComposeOptions& options,
                                  const model::AttentionChoice& attention) {
  return {.design = options.design,
          .stage = whole_model(options.design),
          .precision = options.precision,
          .recompute = options.recompute,
          .attention = attention};
}

ActivationShape micro_batch_shape(const ComposeOptions& options, PassMode mode) {
  return {options.micro_batch, options.sequence, mode};
}

BatchDesign batch_design(const ComposeOptions& options) {
  return batch_design(options.design, options.sequence);
}

}  // namespace lockstep::parallel
