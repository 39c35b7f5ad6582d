#include "agent/train/progress_reporter.h"

#include <utility>

namespace lockstep::train {

ProgressReporter::ProgressReporter(std::optional<ProgressPage> page, int64_t round)
    : page_(std::move(page)) {
  if (page_) board_ = page_->board();
  begin_round(round);
}

void ProgressReporter::begin_round(int64_t round) {
  numbers_ = ProgressNumbers();
  numbers_.round = static_cast<uint64_t>(round);
  // Known while it forms and loads too, so that a job that stands still there is seen.
  numbers_.step = 0;
  if (board_) {
    board_->clear_wait();
    board_->clear_beats();
  }
  // Before the numbers, by whose round the agent knows whose notes these are.
  storage_ = StorageNotes();
  publish_storage();
}

void ProgressReporter::publish() {
  if (!page_) return;
  if (world_ != nullptr) {
    numbers_.suspect_rank = world_->suspect();
  }
  const std::lock_guard lock(mutex_);
  published_ = numbers_;
  write();
}

void ProgressReporter::write() {
  published_.servers_view = servers_view_;
  published_.is_filling = is_filling_ ? 1 : 0;
  if (page_) page_->write(published_);
}

void ProgressReporter::show_view(int64_t number, bool is_filling) {
  const std::lock_guard lock(mutex_);
  servers_view_ = number;
  is_filling_ = is_filling;
  write();
}

bool ProgressReporter::shows_filling() const {
  const std::lock_guard lock(mutex_);
  return is_filling_;
}

void ProgressReporter::enter(WorkerPhase phase) {
  numbers_.phase = phase;
  publish();
}

void ProgressReporter::publish_storage() {
  if (page_) page_->storage().write(storage_);
}

}  // namespace lockstep::train
