#include "agent/train/weights/checkpoint_weights.h"

#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "agent/train/checkpoint/checkpoint_folder.h"
#include "agent/train/checkpoint/checkpoint_reader.h"
#include "agent/train/checkpoint/folder_storage.h"
#include "common/base/log.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

// A checkpoint whose files of parameters were all read and are what the manifest says. Its storage
// outlives it.
struct VerifiedCheckpoint {
  std::string path;
  int64_t step = 0;
  CheckpointReader reader;
};

Result<VerifiedCheckpoint> verify(Storage& storage, const std::string& folder) {
  TRY_ASSIGN(StoredManifest stored, read_manifest(storage, folder));
  std::erase_if(stored.manifest.files,
                [](const ManifestFile& file) { return !file.name.starts_with("model"); });
  TRY_ASSIGN(CheckpointReader reader, CheckpointReader::open(storage, folder, stored.manifest));
  TRY(reader.verify());
  return VerifiedCheckpoint{storage.describe(folder), stored.manifest.position.step,
                            std::move(reader)};
}

// The newest that verifies in a folder of checkpoints.
Result<VerifiedCheckpoint> newest(Storage& storage) {
  TRY_ASSIGN(const std::vector<int64_t> steps, checkpoint_steps(storage));
  for (const int64_t step : steps) {
    Result<VerifiedCheckpoint> found = verify(storage, checkpoint_name(step));
    if (found.ok() || found.error().code != Code::kCorrupt) return found;
    log_warning("skipping a corrupt checkpoint",
                {{"step", step}, {"reason", found.error().message}});
  }
  return not_found("[export] " + storage.describe("") +
                   " has no valid checkpoint; expected a folder such as step-00001000, or one that "
                   "contains such folders");
}

}  // namespace

Result<CheckpointWeights> open_checkpoint_weights(const std::string& from) {
  std::error_code error;
  const fs::path path = fs::path(from).lexically_normal();
  const fs::path folder = path.has_filename() ? path : path.parent_path();
  const bool is_one = fs::exists(folder / kManifestName, error);
  const std::string parent = folder.has_parent_path() ? folder.parent_path().string() : ".";
  auto storage =
      std::make_shared<FolderStorage>(is_one ? parent : folder.string(), real_file_system());
  TRY_ASSIGN(VerifiedCheckpoint found,
             is_one ? verify(*storage, folder.filename().string()) : newest(*storage));
  CheckpointWeights weights{.checkpoint = found.path, .step = found.step, .tensors = {}};
  for (const auto& [name, shape] : found.reader.shapes()) weights.tensors.push_back({name, shape});
  weights.read = [storage, reader = std::make_shared<CheckpointReader>(std::move(found.reader))](
                     const WeightTensor& tensor, int64_t first, std::span<float> to) {
    return reader->read(tensor.name, first, to);
  };
  return weights;
}

}  // namespace lockstep::train
