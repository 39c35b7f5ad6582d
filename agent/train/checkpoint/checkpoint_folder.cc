#include "agent/train/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "common/base/log.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kUnfinished = ".unfinished-";  // of names that count as nothing

Error failure(const std::string& what, const std::error_code& error) {
  return errno_error("[checkpoint] " + what, error.value(), Blame::kStorage);
}

// The step of a folder's name, -1 for other names.
int64_t step_of(std::string_view name) {
  if (name.substr(0, kPrefix.size()) != kPrefix) return -1;
  name.remove_prefix(kPrefix.size());
  int64_t step = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  return error == std::errc() && end == name.data() + name.size() ? step : -1;
}

// Calls `visit` with the name of every entry.
Status each_entry(const std::string& path, const std::function<void(const std::string&)>& visit) {
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    visit(it->path().filename().string());
  }
  if (error) return failure(path, error);
  return {};
}

Status rename_folder(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) return failure("rename of " + from + " to " + to, error);
  return {};
}

}  // namespace

Result<VerifiedCheckpoint> verify_checkpoint(const std::string& path) {
  TRY_ASSIGN(const std::string text,
             read_small_file(path + "/" + kManifestName, kManifestBytesMax));
  TRY_ASSIGN(Manifest manifest, parse_manifest(text));
  for (const ManifestFile& file : manifest.files) {
    TRY_ASSIGN(const FileDigest digest, digest_file(path + "/" + file.name));
    if (!(digest == file.digest)) {
      return corrupt("[checkpoint] " + path + "/" + file.name +
                         " does not match the size and checksum in the manifest",
                     Blame::kStorage);
    }
  }
  return VerifiedCheckpoint{path, std::move(manifest)};
}

CheckpointFolder::CheckpointFolder(std::string path, int64_t keep)
    : path_(std::move(path)), keep_(std::max<int64_t>(keep, 1)) {}

Status CheckpointFolder::prepare() {
  std::error_code error;
  fs::create_directories(path_, error);
  if (error) return failure(path_, error);
  std::vector<std::string> left;
  TRY(each_entry(path_, [&](const std::string& name) {
    if (name.rfind(kUnfinished, 0) == 0) left.push_back(name);
  }));
  for (const std::string& name : left) {
    fs::remove_all(path_ + "/" + name, error);
    if (error) return failure("removal of " + name, error);
  }
  return {};
}

std::string CheckpointFolder::folder_of(int64_t step) const {
  char name[40];
  std::snprintf(name, sizeof(name), "step-%08lld", static_cast<long long>(step));
  return path_ + "/" + name;
}

Result<std::optional<VerifiedCheckpoint>> CheckpointFolder::newest() const {
  std::vector<int64_t> found;
  TRY(each_entry(path_, [&](const std::string& name) {
    if (step_of(name) >= 0) found.push_back(step_of(name));
  }));
  std::sort(found.rbegin(), found.rend());
  for (const int64_t step : found) {
    Result<VerifiedCheckpoint> checkpoint = verify_checkpoint(folder_of(step));
    if (checkpoint.ok() && checkpoint->manifest.position.step == step) {
      return std::optional(std::move(*checkpoint));
    }
    log_warning("skipping an invalid checkpoint",
                {{"step", step},
                 {"reason", checkpoint.ok() ? "its manifest is for another step"
                                            : checkpoint.error().message}});
  }
  return std::optional<VerifiedCheckpoint>();
}

Status CheckpointFolder::write_files(const std::string& folder, Manifest manifest,
                                     std::vector<StateFile> files, const Collect& collect) const {
  std::error_code error;
  fs::create_directory(folder, error);
  if (error) return failure(folder, error);
  StateWriter writer(folder, std::move(files));
  TRY(collect(writer));
  TRY_ASSIGN(manifest.files, writer.finish());
  TRY(write_file_synced(folder + "/" + kManifestName, format_manifest(manifest)));
  return sync_folder(folder);
}

Status CheckpointFolder::save(Manifest manifest, std::vector<StateFile> files,
                              const Collect& collect) {
  const int64_t step = manifest.position.step;
  const std::string to = folder_of(step);
  const std::string unfinished = path_ + "/" + std::string(kUnfinished);
  const std::string writing = unfinished + "new-" + std::to_string(step);
  const std::string replaced = unfinished + "old-" + std::to_string(step);
  std::error_code error;
  fs::remove_all(writing, error);
  TRY(write_files(writing, std::move(manifest), std::move(files), collect));
  const bool there = fs::exists(to, error);
  if (there) TRY(rename_folder(to, replaced));
  TRY(rename_folder(writing, to));
  TRY(sync_folder(path_));
  if (there) fs::remove_all(replaced, error);
  prune(step);
  return {};
}

// Folders of later steps count as nothing: they did not verify when this run began, or it would
// have begun there.
void CheckpointFolder::prune(int64_t newest_step) const {
  std::vector<int64_t> old;
  const Status listed = each_entry(path_, [&](const std::string& name) {
    const int64_t step = step_of(name);
    if (step >= 0 && step <= newest_step) old.push_back(step);
  });
  std::sort(old.rbegin(), old.rend());
  std::error_code error;
  for (size_t i = static_cast<size_t>(keep_); i < old.size() && !error; ++i) {
    fs::remove_all(folder_of(old[i]), error);
  }
  if (error || !listed.ok()) {
    log_warning("an old checkpoint could not be removed",
                {{"path", path_}, {"reason", error ? error.message() : listed.error().message}});
  }
}

}  // namespace lockstep::train
