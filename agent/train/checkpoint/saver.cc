#include "agent/train/checkpoint/saver.h"

#include <utility>

#include "common/base/log.h"

namespace lockstep::train {
namespace {

Result<std::vector<ManifestFile>> files_of_all(const std::vector<std::string>& texts) {
  std::vector<ManifestFile> files;
  for (const std::string& text : texts) {
    TRY_ASSIGN(std::vector<ManifestFile> some, parse_files(text));
    for (ManifestFile& file : some) files.push_back(std::move(file));
  }
  return files;
}

}  // namespace

Status Saver::begin(Manifest manifest) {
  const TimePoint start = parts_.clock.now();
  TRY(end_exchange());
  TRY(parts_.model.take_snapshot());
  begun_at_ = start;
  folder_ = CheckpointFolder::unfinished_folder(owner_, manifest.position.step, ++saves_);
  manifest_ = std::move(manifest);
  writing_.start([this](const std::stop_token& stop) { return write_files(stop); });
  add_blocked(start);
  return {};
}

void Saver::add_blocked(TimePoint since) {
  parts_.progress.storage().blocked_seconds += to_seconds(parts_.clock.now() - since);
}

// On the thread of `writing_`. Reads the model's snapshot, which stays until the next begin().
Status Saver::write_files(const std::stop_token& stop) {
  TRY(parts_.storage.make_folder(folder_));
  const ShardPlace place{.rank = parts_.world.rank(), .ranks = parts_.world.size()};
  TRY_ASSIGN(written_,
             write_shard(parts_.storage, folder_, place, table_, parts_.model.snapshot(), stop));
  return {};
}

void Saver::commit() {
  CHECK(awaits_commit());
  const TimePoint start = parts_.clock.now();
  const Status mine = writing_.wait();
  exchange_.emplace(parts_.outcomes, mine, mine.ok() ? format_files(written_) : std::string());
  add_blocked(start);
}

Status Saver::end_exchange() {
  if (!manifest_) return {};
  if (!exchange_) commit();
  TRY_ASSIGN(OutcomeExchange::Result outcome, exchange_->finish());
  exchange_.reset();
  Manifest manifest = *std::exchange(manifest_, std::nullopt);
  const std::string folder = std::move(folder_);
  const int64_t step = manifest.position.step;
  if (!outcome.all.ok()) {
    const Status cause = outcome.all;
    return start_publishing([this, folder, cause] { return abandon(folder, cause); }, step);
  }
  return start_publishing(
      [this, folder, texts = std::move(outcome.texts),
       manifest = std::move(manifest)]() mutable -> Status {
        TRY_ASSIGN(manifest.files, files_of_all(texts));
        const Status published = parts_.folder->publish(folder, manifest);
        return published.ok() ? published : abandon(folder, published);
      },
      step);
}

// Returns the cause, or that the storage has another owner.
Status Saver::abandon(const std::string& folder, const Status& cause) {
  TRY(parts_.folder->abandon(folder));
  return cause;
}

// Only rank 0 has the folder.
Status Saver::start_publishing(std::function<Status()> task, int64_t step) {
  if (parts_.folder == nullptr) return {};
  TRY(wait_for_publishing());
  publishing_step_ = step;
  publishing_begun_at_ = begun_at_;
  publishing_.start([task = std::move(task)](const std::stop_token&) { return task(); });
  return {};
}

Status Saver::poll() {
  if (exchange_ && exchange_->advance()) TRY(end_exchange());
  if (!publishing_.has_task() || publishing_.is_running()) return {};
  return wait_for_publishing();
}

Status Saver::wait_for_publishing() {
  if (!publishing_.has_task()) return {};
  const Status published = publishing_.wait();
  if (!published.ok()) return note_failure(publishing_step_, published.error());
  note_success(publishing_step_);
  return {};
}

Status Saver::note_failure(int64_t step, const Error& error) {
  if (error.blame == Blame::kFenced) return error;
  StorageNotes& notes = parts_.progress.storage();
  notes.failed += 1;
  notes.failed_step = step;
  notes.failure.assign(error.message);
  parts_.progress.publish_storage();
  log_warning("a checkpoint could not be saved", {{"step", step}, {"reason", error.message}});
  return {};
}

void Saver::note_success(int64_t step) {
  saved_step_ = step;
  StorageNotes& notes = parts_.progress.storage();
  notes.saved += 1;
  notes.failed_step = -1;
  notes.save_seconds = to_seconds(parts_.clock.now() - publishing_begun_at_);
  parts_.progress.publish_storage();
  parts_.progress.numbers().checkpoint_step = step;
  parts_.progress.publish();
}

Result<int64_t> Saver::finish() {
  const TimePoint start = parts_.clock.now();
  TRY(end_exchange());
  TRY(wait_for_publishing());
  add_blocked(start);
  parts_.progress.publish_storage();
  TRY_ASSIGN(const std::vector<int64_t> steps, parts_.world.all_gather_value(saved_step_));
  return steps[0];
}

}  // namespace lockstep::train
