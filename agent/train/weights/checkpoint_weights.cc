#include "agent/train/weights/checkpoint_weights.h"

#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "agent/optim/optimizer.h"
#include "agent/train/checkpoint/checkpoint_folder.h"
#include "agent/train/checkpoint/checkpoint_reader.h"
#include "agent/train/checkpoint/folder_storage.h"
#include "common/base/log.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

// A checkpoint whose files with the weights were all read and are what the manifest says. Its
// storage outlives it.
struct VerifiedCheckpoint {
  std::string path;
  int64_t step = 0;
  CheckpointReader reader;
};

Result<VerifiedCheckpoint> verify(Storage& storage, const std::string& folder, WeightsKind kind) {
  TRY_ASSIGN(StoredManifest stored, read_manifest(storage, folder));
  const char* stem = kind == WeightsKind::kParameters ? "model" : "optimizer";
  std::erase_if(stored.manifest.files,
                [&](const ManifestFile& file) { return !file.name.starts_with(stem); });
  TRY_ASSIGN(CheckpointReader reader, CheckpointReader::open(storage, folder, stored.manifest));
  TRY(reader.verify());
  return VerifiedCheckpoint{storage.describe(folder), stored.manifest.position.step,
                            std::move(reader)};
}

// The newest that verifies in a folder of checkpoints.
Result<VerifiedCheckpoint> newest(Storage& storage, WeightsKind kind) {
  TRY_ASSIGN(const std::vector<int64_t> steps, checkpoint_steps(storage));
  for (const int64_t step : steps) {
    Result<VerifiedCheckpoint> found = verify(storage, checkpoint_name(step), kind);
    if (found.ok() || found.error().code != Code::kCorrupt) return found;
    log_warning("skipping a corrupt checkpoint",
                {{"step", step}, {"reason", found.error().message}});
  }
  return not_found("[export] " + storage.describe("") +
                   " has no valid checkpoint; expected a folder such as step-00001000, or one that "
                   "contains such folders");
}

}  // namespace

Result<CheckpointWeights> open_checkpoint_weights(const std::string& from, WeightsKind kind) {
  std::error_code error;
  const fs::path path = fs::path(from).lexically_normal();
  const fs::path folder = path.has_filename() ? path : path.parent_path();
  const bool is_one = fs::exists(folder / kManifestName, error);
  const std::string parent = folder.has_parent_path() ? folder.parent_path().string() : ".";
  auto storage =
      std::make_shared<FolderStorage>(is_one ? parent : folder.string(), real_file_system());
  TRY_ASSIGN(VerifiedCheckpoint found,
             is_one ? verify(*storage, folder.filename().string(), kind) : newest(*storage, kind));
  CheckpointWeights weights{.checkpoint = found.path, .step = found.step, .tensors = {}};
  const std::string suffix =
      kind == WeightsKind::kParameters ? "" : std::string(".") + optim::kAverageName;
  for (const auto& [name, shape] : found.reader.shapes()) {
    if (!name.ends_with(suffix)) continue;
    weights.tensors.push_back({name.substr(0, name.size() - suffix.size()), shape});
  }
  if (weights.tensors.empty() && kind == WeightsKind::kAverages) {
    return invalid("[export] " + found.path +
                   " has no moving averages, expected a checkpoint of a job with spec.train.ema");
  }
  weights.read = [storage, suffix,
                  reader = std::make_shared<CheckpointReader>(std::move(found.reader))](
                     const WeightTensor& tensor, int64_t first, std::span<float> to) {
    return reader->read(tensor.name + suffix, first, to);
  };
  return weights;
}

}  // namespace lockstep::train
