// Phase 5: after the last step.
#include <string>

#include "agent/train/sample_text.h"
#include "agent/train/worker.h"

namespace lockstep::train {

// Ranks that have all parameters sample alone, once all have come to the end: nobody waits for
// that. Their exit codes still count, so a round in which one fails is a
// failed round.
Status Worker::finish() {
  progress_.enter(WorkerPhase::kFinishing);
  const bool samples = data_.text != nullptr && config_.train.sample.tokens > 0;
  if (samples && model_->computes_together()) TRY(sample());
  TRY(world_->barrier());
  progress_.follow(nullptr);  // the others may leave
  const bool is_left = samples && !model_->computes_together() && model_->place().data == 0;
  if (is_left) TRY(sample());
  progress_.enter(WorkerPhase::kDone);
  return {};
}

Status Worker::sample() {
  TRY_ASSIGN(const std::optional<std::string> text,
             sample_text(*model_, config_.train.sample, data_));
  if (text && config_.rank == 0) keep_sample(*text, config_.checkpoint.path);
  return {};
}

}  // namespace lockstep::train
