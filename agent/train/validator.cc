#include "agent/train/validator.h"

#include "agent/model/passes.h"
#include "agent/train/stop_signal.h"
#include "common/api/worker_config.h"

namespace lockstep {
namespace {

struct RankReport {
  double loss_sum = 0;
  int64_t stop = 0;
};

}  // namespace

Result<Validator> Validator::create(const DataSplit& split, int64_t rows, const Parts& parts) {
  TRY_ASSIGN(MicroBatch micro,
             parts.model.model().make_micro_batch({rows, split.context, PassMode::kEvaluate}));
  return Validator(split, rows, parts, std::move(micro));
}

Result<double> Validator::batch_loss(int64_t first_window) {
  TRY(parts_.reason.note(kExitDataError,
                         read_validation(parts_.source, split_, first_window, rows_, batch_)));
  Gpt& model = parts_.model.model();
  TRY(model.begin(micro_, {.tokens = batch_.tokens.data(),
                           .targets = batch_.targets.data(),
                           .batch = batch_.rows,
                           .sequence = split_.context}));
  TRY(forward_pass(model, parts_.model.store(), micro_));
  return loss_sum(model, micro_);
}

Result<std::optional<double>> Validator::run() {
  RankReport mine;
  const int64_t stride = rows_ * parts_.world.size();
  for (int64_t window = rows_ * parts_.world.rank(); window < split_.validation_windows();
       window += stride) {
    if (StopSignal::requested()) {
      mine.stop = 1;
      break;
    }
    TRY_ASSIGN(const double sum, batch_loss(window));
    mine.loss_sum += sum;
  }
  TRY_ASSIGN(const std::vector<RankReport> reports,
             parts_.reason.note(kExitPeerLost, parts_.world.all_gather_value(mine)));
  double total = 0;
  for (const RankReport& report : reports) {
    if (report.stop != 0) return std::optional<double>();
    total += report.loss_sum;
  }
  return std::optional(total / static_cast<double>(split_.validation_tokens()));
}

}  // namespace lockstep
