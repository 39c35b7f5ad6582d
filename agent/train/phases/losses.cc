// Losses that are not finite, and spikes: training fails, or goes on without batches from an
// earlier state.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "agent/train/worker.h"
#include "common/base/log.h"

namespace lockstep::train {
namespace {

std::string describe(LossVerdict verdict, double loss, double norm, const LossRecord& record,
                     const LossRules& rules) {
  char text[200];
  if (verdict == LossVerdict::kNotFinite) {
    std::snprintf(text, sizeof(text), "loss %.6g, gradient norm %.6g", loss, norm);
  } else {
    std::snprintf(text, sizeof(text),
                  "loss %.6g is above %.6g, %d standard deviations over the mean of %.6g", loss,
                  spike_threshold(record, rules), static_cast<int>(rules.deviations), record.mean);
  }
  return text;
}

std::string batches_of(const SkippedSteps& steps) {
  if (steps.first == steps.last) return "without this batch";
  return "without the batches of steps " + std::to_string(steps.first) + " to " +
         std::to_string(steps.last);
}

}  // namespace

Status Worker::judge_loss(const TrainStep::Outcome& outcome) {
  if (outcome.known_step <= 0) return {};
  const double loss = outcome.numbers.loss.value_or(NAN);
  const double norm = outcome.numbers.gradient_norm.value_or(NAN);
  const LossRules& rules = losses_;
  const LossVerdict verdict = judge(position_.losses, rules, loss, norm);
  if (verdict == LossVerdict::kGood) {
    loss_ = loss;
    if (!rules.spike.empty()) add_loss(position_.losses, loss);
    return {};
  }
  const bool is_spike = verdict == LossVerdict::kSpike;
  const std::string what = "step " + std::to_string(outcome.known_step) + ": " +
                           describe(verdict, loss, norm, position_.losses, rules);
  const Blame blame = is_spike ? Blame::kLossSpike : Blame::kDivergence;
  const std::string& action = is_spike ? rules.spike : rules.not_finite;
  if (action == kFailAction) {
    return invalid("[train] " + what + ": a lower learning rate or a longer warm-up may help",
                   blame);
  }
  if (position_.losses.skips >= LossRecord::kSkipsMax) {
    return invalid("[train] " + what + ", after training went on without batches " +
                       std::to_string(position_.losses.skips) +
                       " times: a lower learning rate or a longer warm-up may help",
                   blame);
  }
  return go_on_without(
      {.action = action, .what = what, .blame = blame, .is_updated = std::isfinite(norm)});
}

// Training goes on at the same step, so that the learning rate and the order of the samples stay
// as they are. The copies for products are made anew, as those of a run that resumes here.
// Source: Chowdhery et al., 2022 (PaLM), section 5.1, for skipping the batches since a checkpoint.
Status Worker::go_on_without(const BadStep& bad) {
  hang_limit_.note_pause();
  progress_.enter(WorkerPhase::kSaving);  // reading and writing states takes its time
  TRY(model_->settle());
  const TrainingPosition there = position_;
  TRY_ASSIGN(const int64_t from, go_back(bad));
  const SkippedSteps skipped{.first = from + 1, .last = there.step};
  position_.step = there.step;
  position_.samples = there.samples;
  position_.losses.skips = there.losses.skips;
  position_.losses.skipped = there.losses.skipped;
  CHECK(add_skip(position_.losses, skipped));
  TRY(model_->exchange_shares(position_.step));
  progress_.enter(WorkerPhase::kTraining);
  if (config_.rank != 0) return {};
  const std::string text = bad.what + "; training goes on from the state of step " +
                           std::to_string(from) + ", " + batches_of(skipped);
  log_warning("training goes on without batches",
              {{"why", bad.what}, {"firstStep", skipped.first}, {"lastStep", skipped.last}});
  StorageNotes& notes = progress_.storage();
  notes.skips = position_.losses.skips;
  notes.skip.assign(text);
  progress_.publish_storage();
  return {};
}

// A norm that is not finite updates nothing: the state is still that of the step before.
Result<int64_t> Worker::go_back(const BadStep& bad) {
  if (bad.action == kSkipBatch) {
    if (!bad.is_updated) return position_.step - 1;
    return go_back_in_memory(bad);
  }
  if (!saver_) return cannot_go_back(bad, "there is no spec.checkpoint.path");
  TRY(saver_->finish());
  const int64_t set_aside = progress_.storage().set_aside;
  TRY_ASSIGN(const std::optional<Manifest> found, load_good_checkpoint());
  StorageNotes& notes = progress_.storage();
  const bool was_corrupt = notes.set_aside > set_aside;
  if (!found && was_corrupt) {
    return cannot_go_back(bad, "the checkpoint of step " + std::to_string(notes.set_aside_step) +
                                   " is corrupt and was set aside");
  }
  if (!found) return cannot_go_back(bad, "there is no checkpoint of an earlier step");
  go_on_from(*found);
  if (was_corrupt && config_.rank == 0) notes.resumed_step = position_.step;
  return position_.step;
}

// If no loss was good since training went back to a state, the cause may be in that state: an
// update whose loss was not bad yet. Then an older one is better, if there is one. Depends on the
// position alone, so that a run that was killed does the same.
Result<std::optional<Manifest>> Worker::load_good_checkpoint() {
  const LossRecord& losses = position_.losses;
  if (losses.skips > 0) {
    const SkippedSteps& newest = losses.skipped[static_cast<size_t>(losses.skips - 1)];
    if (newest.last == position_.step - 1) {
      TRY_ASSIGN(const std::optional<Manifest> older, load_checkpoint(newest.first - 1));
      if (older) return older;
    }
  }
  return load_checkpoint(position_.step);
}

// All ranks keep the same steps: before an update, each has waited for its copy.
Result<int64_t> Worker::go_back_in_memory(const BadStep& bad) {
  if (!keeper_) return cannot_go_back(bad, "no states are in memory");
  const auto states = keeper_->own().kept();
  const KeptState& newest = *std::ranges::max_element(states, {}, &KeptState::step);
  if (newest.step < 0) return cannot_go_back(bad, "no state is in memory yet");
  TRY(model_->restore_share(keeper_->own().values_of(newest.step)));
  position_.losses = newest.losses;
  loss_ = newest.loss;
  return newest.step;
}

Error Worker::cannot_go_back(const BadStep& bad, const std::string& why) const {
  return invalid("[train] " + bad.what + ", and " + std::string(bad.action) +
                     " has nothing to go back to: " + why,
                 bad.blame);
}

}  // namespace lockstep::train
