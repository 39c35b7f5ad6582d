#include "agent/train/validator.h"

#include "agent/train/stop_signal.h"

namespace lockstep::train {

Result<Validator> Validator::create(const Options& options, parallel::Composition& model,
                                    const SampleSource& source) {
  TRY_ASSIGN(BatchSlot slot, BatchSlot::create(model.stream().device(),
                                               model.batch_memory(parallel::kEvaluationSlot)));
  return Validator(options, model, source, std::move(slot));
}

Validator::Samples::Samples(Validator& validator)
    : validator_(validator), next_(validator.options_.rows * validator.options_.rank) {}

Result<std::optional<parallel::DeviceBatch>> Validator::Samples::next() {
  const Options& options = validator_.options_;
  const SampleSource& source = *validator_.source_;
  if (next_ >= source.validation_samples()) return std::optional<parallel::DeviceBatch>();
  SampleBatch& batch = validator_.batch_;
  TRY(source.read_validation(next_, options.rows, batch));
  next_ += options.rows * options.ranks;
  TRY_ASSIGN(const parallel::DeviceBatch placed,
             validator_.slot_.put(batch, validator_.model_->stream()));
  return std::optional(placed);
}

Result<std::optional<parallel::Evaluation>> Validator::run() {
  Samples samples(*this);
  return model_->evaluate(samples, StopSignal::requested);
}

}  // namespace lockstep::train
