#include "tests/agent/train/saved_checkpoints.h"

#include <algorithm>
#include <utility>

namespace lockstep::train {
namespace {

constexpr int64_t kRoundsMax = 5;  // rounds that load() knows
const Mesh kMesh{.data = 2};

}  // namespace

WrittenState state_at(int64_t round, int64_t step) {
  CHECK(round < kRoundsMax && step % 5 == 0);
  return {kTinyMlp, kMesh, static_cast<uint32_t>(step / 5 * kRoundsMax + round)};
}

Manifest manifest_at(int64_t round, int64_t step) {
  return {.position = {.step = step, .samples = 8 * step, .weights_seed = 3, .data_seed = 4},
          .loss = 1.75,
          .round = round,
          .mesh = kMesh,
          .files = {}};
}

Status RoundOfJob::prepare() {
  TRY(storage_.make_root());
  return folder_.prepare();
}

Status RoundOfJob::write_and_publish(const std::string& folder, int64_t step) {
  const WrittenState state = state_at(round_, step);
  Manifest manifest = manifest_at(round_, step);
  for (int64_t rank = 0; rank < kMesh.size(); ++rank) {
    TRY(storage_.make_folder(folder));
    TRY_ASSIGN(std::vector<ManifestFile> files, state.write(storage_, folder, rank));
    for (ManifestFile& file : files) manifest.files.push_back(std::move(file));
  }
  return folder_.publish(folder, manifest);
}

Status RoundOfJob::save(int64_t step) {
  const std::string folder =
      CheckpointFolder::unfinished_folder(owner_of_round(round_), step, ++saves_);
  const Status saved = write_and_publish(folder, step);
  if (!saved.ok()) TRY(folder_.abandon(folder));
  return saved;
}

Result<int64_t> load_folder(Storage& storage, const std::string& folder, int64_t step) {
  TRY_ASSIGN(const StoredManifest stored, read_manifest(storage, folder));
  TRY_ASSIGN(CheckpointReader reader, CheckpointReader::open(storage, folder, stored.manifest));
  for (int64_t round = 0; round < kRoundsMax; ++round) {
    if (stored.manifest.position != manifest_at(round, step).position) break;
    if (stored.manifest.round != round) continue;
    const WrittenState state = state_at(round, step);
    TRY(reader.expect(state.table().parameters, kTestStates));
    TRY_ASSIGN(const bool is_there, state.is_in(reader));
    if (is_there) return round;
  }
  return -1;
}

Result<int64_t> load(Storage& storage, int64_t step) {
  return load_folder(storage, checkpoint_name(step), step);
}

std::vector<std::string> names_in(const MemoryFileSystem& files) {
  std::vector<std::string> names;
  const std::string root = std::string(kRoot) + "/";
  for (const auto& [path, bytes] : files.files()) {
    if (!path.starts_with(root)) continue;
    std::string name = path.substr(root.size());
    if (name.ends_with('/')) name.pop_back();
    if (name.empty() || name.find('/') != std::string::npos || name.starts_with("owner-")) continue;
    names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace lockstep::train
