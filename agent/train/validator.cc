#include "agent/train/validator.h"

#include "agent/train/stop_signal.h"

namespace lockstep::train {

Result<Validator> Validator::create(const Options& options, parallel::Composition& model,
                                    const TokenSource& source) {
  TRY_ASSIGN(TokenSlot slot, TokenSlot::create(model.stream().device(),
                                               model.token_memory(parallel::kEvaluationSlot)));
  return Validator(options, model, source, std::move(slot));
}

Validator::Windows::Windows(Validator& validator)
    : validator_(validator), window_(validator.options_.rows * validator.options_.rank) {}

Result<std::optional<parallel::DeviceBatch>> Validator::Windows::next() {
  const Options& options = validator_.options_;
  if (window_ >= options.split.validation_windows()) return std::optional<parallel::DeviceBatch>();
  TokenBatch& batch = validator_.batch_;
  TRY(read_validation(*validator_.source_, options.split, window_, options.rows, batch));
  window_ += options.rows * options.ranks;
  TRY_ASSIGN(const parallel::DeviceBatch placed,
             validator_.slot_.put(batch, validator_.model_->stream()));
  return std::optional(placed);
}

Result<std::optional<double>> Validator::run() {
  Windows windows(*this);
  return model_->evaluate(windows, StopSignal::requested);
}

}  // namespace lockstep::train
