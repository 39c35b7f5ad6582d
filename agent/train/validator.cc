#include "agent/train/validator.h"

#include "agent/model/passes.h"
#include "agent/train/stop_signal.h"
#include "common/api/worker_config.h"

namespace lockstep::train {
namespace {

struct RankReport {
  double loss_sum = 0;
  int64_t stop = 0;
};

}  // namespace

Result<Validator> Validator::create(const DataSplit& split, int64_t rows, const Parts& parts) {
  TRY_ASSIGN(model::MicroBatch micro, parts.model.make_micro_batch(PassMode::kEvaluate));
  TRY_ASSIGN(TokenSlot slot,
             TokenSlot::create(parts.model.stream().device(), parts.model.token_memory(2)));
  return Validator(split, rows, parts, std::move(micro), std::move(slot));
}

Status Validator::add_batch(int64_t first_window) {
  TRY(parts_.reason.note(kExitDataError,
                         read_validation(parts_.source, split_, first_window, rows_, batch_)));
  model::Gpt& model = parts_.model.model();
  TRY_ASSIGN(const DeviceTokens tokens, slot_.put(batch_, model.stream()));
  TRY(model.begin(micro_, {.tokens = tokens.tokens,
                           .targets = tokens.targets,
                           .batch = tokens.rows,
                           .sequence = split_.context}));
  TRY(model::forward_pass(model, parts_.model.store(), micro_));
  parts_.model.add_losses(micro_);
  return {};
}

Result<std::optional<double>> Validator::run() {
  RankReport mine;
  parts_.model.begin_losses();
  const int64_t stride = rows_ * parts_.world.size();
  for (int64_t window = rows_ * parts_.world.rank(); window < split_.validation_windows();
       window += stride) {
    if (StopSignal::requested()) {
      mine.stop = 1;
      break;
    }
    TRY(add_batch(window));
  }
  TRY_ASSIGN(const parallel::StepValues values, parts_.model.scalars());
  mine.loss_sum = values.loss_sum;
  TRY_ASSIGN(const std::vector<RankReport> reports,
             parts_.reason.note(kExitPeerLost, parts_.world.all_gather_value(mine)));
  double total = 0;
  for (const RankReport& report : reports) {
    if (report.stop != 0) return std::optional<double>();
    total += report.loss_sum;
  }
  return std::optional(total / static_cast<double>(split_.validation_tokens()));
}

}  // namespace lockstep::train
