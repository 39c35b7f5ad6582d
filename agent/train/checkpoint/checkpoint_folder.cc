#include "agent/train/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <utility>

#include "agent/train/checkpoint/chunked_file.h"
#include "agent/train/checkpoint/numbered_name.h"
#include "common/base/log.h"

namespace lockstep::train {
namespace {

constexpr NumberedName kStep{"step-"};
constexpr std::string_view kUnfinished = ".unfinished-";  // being written
constexpr std::string_view kRemoving = ".removing-";      // being removed
constexpr std::string_view kSetAside = "set-aside-";
constexpr int kNamesMax = 100;

void warn_unless_ok(const Status& removed) {
  if (removed.ok()) return;
  log_warning("an old or unfinished checkpoint could not be removed",
              {{"reason", removed.error().message}});
}

Error missing(const std::string& path) {
  return corrupt("[checkpoint] " + path + " has no manifest", Blame::kStorage);
}

}  // namespace

Result<StoredManifest> read_manifest(Storage& storage, const std::string& folder) {
  Result<std::string> text = read_object(storage, folder + "/" + kManifestName, kManifestBytesMax);
  if (!text.ok() && text.error().code == Code::kNotFound) return missing(storage.describe(folder));
  if (!text.ok()) return text.error();
  Result<Manifest> manifest = parse_manifest(*text);
  if (!manifest.ok()) {
    return manifest.error().with_message(storage.describe(folder) + ": " +
                                         manifest.error().message);
  }
  for (const ManifestFile& file : manifest->files) {
    if (!file.sha256) continue;
    TRY_ASSIGN(ChunkedReader reader, ChunkedReader::open(storage, folder, file));
    TRY(reader.verify());
  }
  return StoredManifest{*std::move(text), *std::move(manifest)};
}

std::string checkpoint_name(int64_t step) {
  return kStep.of(step);
}

Result<std::vector<int64_t>> checkpoint_steps(Storage& storage) {
  TRY_ASSIGN(const std::vector<std::string> names, storage.list(""));
  std::vector<int64_t> steps;
  for (const std::string& name : names) {
    const int64_t step = kStep.number_of(name);
    if (step >= 0) steps.push_back(step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

CheckpointFolder::CheckpointFolder(Storage& storage, OwnerRecord owner, int64_t keep)
    : storage_(storage), owner_(storage, std::move(owner)), keep_(std::max<int64_t>(keep, 1)) {}

// Makes room for the owner's record on a disk that is full. Needs no owner.
void CheckpointFolder::remove_what_nobody_reads() {
  const Result<std::vector<std::string>> names = storage_.list("");
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (name.starts_with(kRemoving)) warn_unless_ok(storage_.remove_folder(name));
  }
}

// Looks, then checks, then removes: a successor that began before the check is the owner, and what
// one that began after it writes was not seen.
Status CheckpointFolder::prepare() {
  remove_what_nobody_reads();
  TRY(owner_.take());
  TRY_ASSIGN(const std::vector<std::string> names, storage_.list(""));
  TRY(owner_.check());
  for (const std::string& name : names) {
    if (!name.starts_with(kUnfinished)) continue;
    warn_unless_ok(remove_all_at_once(name, std::string(kRemoving) + name.substr(1)));
  }
  return {};
}

std::string CheckpointFolder::unfinished_folder(const OwnerRecord& owner, int64_t step,
                                                int64_t save) {
  return std::string(kUnfinished) + kStep.of(step) + "-r" + std::to_string(owner.round) + "-" +
         owner.boot_id + "-" + std::to_string(save);
}

// Takes the next free name if this owner has set the step aside before.
Result<SetAside> CheckpointFolder::set_aside(int64_t step, const std::string& reason) {
  TRY(owner_.check());
  const std::string name =
      std::string(kSetAside) + kStep.of(step) + "-" + std::to_string(owner_.number());
  std::string to = name;
  Status done = storage_.move_folder(checkpoint_name(step), to);
  for (int i = 2; !done.ok() && done.error().code == Code::kConflict && i <= kNamesMax; ++i) {
    to = name + "." + std::to_string(i);
    done = storage_.move_folder(checkpoint_name(step), to);
  }
  TRY(done);
  SetAside moved{.step = step, .name = to, .reason = reason};
  log_warning("a checkpoint was set aside",
              {{"step", step}, {"path", storage_.describe(to)}, {"reason", reason}});
  return moved;
}

// A checkpoint of that step was not loaded, or this run would have begun after it.
Status CheckpointFolder::make_room(int64_t step) {
  const Result<std::vector<std::string>> there = storage_.list(checkpoint_name(step));
  if (!there.ok()) return there.error().code == Code::kNotFound ? Status() : there.error();
  TRY(set_aside(step, "another checkpoint of this step replaces it"));
  return {};
}

// Ranks that write to another volume are found here at the latest.
Status CheckpointFolder::expect_files(const std::string& folder, const Manifest& manifest) {
  for (const ManifestFile& file : manifest.files) {
    const Result<ChunkedReader> there = ChunkedReader::open(storage_, folder, file);
    if (there.ok()) continue;
    return unavailable(
        "[checkpoint] rank 0 does not see what another rank wrote: " + there.error().message,
        Blame::kStorage);
  }
  return {};
}

Status CheckpointFolder::publish(const std::string& folder, const Manifest& manifest) {
  const int64_t step = manifest.position.step;
  TRY(expect_files(folder, manifest));
  TRY(storage_.put_new(folder + "/" + kManifestName, format_manifest(manifest)));
  TRY(make_room(step));
  TRY(owner_.check());
  TRY(storage_.move_folder(folder, checkpoint_name(step)));
  prune(step);
  return {};
}

Status CheckpointFolder::abandon(const std::string& folder) {
  warn_unless_ok(storage_.remove_folder(folder));
  const Status owned = owner_.check();
  return !owned.ok() && owned.error().blame == Blame::kFenced ? owned : Status();
}

// The ranks that wrote a checkpoint have read it back, so all of them count. One of a later step
// was published by a former owner that was cut off, and stays.
void CheckpointFolder::prune(int64_t newest_step) {
  const Result<std::vector<int64_t>> found = checkpoint_steps(storage_);
  Status pruned = found.ok() ? Status() : found.error();
  int64_t kept = 0;
  for (size_t i = 0; pruned.ok() && i < found->size(); ++i) {
    const int64_t step = (*found)[i];
    if (step > newest_step || ++kept <= keep_) continue;
    pruned = remove_checkpoint(step);
  }
  warn_unless_ok(pruned);
}

Status CheckpointFolder::remove_checkpoint(int64_t step) {
  TRY(owner_.check());
  const std::string name = checkpoint_name(step);
  return remove_all_at_once(name, std::string(kRemoving) + name);
}

// Under another name first. So no half of a checkpoint is ever taken for a corrupt one, and a
// former owner does not publish a folder while it loses its files.
Status CheckpointFolder::remove_all_at_once(const std::string& folder,
                                            const std::string& removing) {
  TRY(storage_.remove_folder(removing));
  const Status moved = storage_.move_folder(folder, removing);
  if (!moved.ok() && moved.error().code == Code::kNotFound) return {};
  TRY(moved);
  return storage_.remove_folder(removing);
}

}  // namespace lockstep::train
