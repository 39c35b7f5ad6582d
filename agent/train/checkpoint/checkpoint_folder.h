#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/train/checkpoint/manifest.h"
#include "agent/train/checkpoint/state_files.h"
#include "common/base/result.h"

namespace lockstep::train {

// A checkpoint that is complete and whose files have the sizes and checksums of its manifest.
struct VerifiedCheckpoint {
  std::string path;
  Manifest manifest;
};

// Checkpoints as folders `step-00000500` in one folder: tensors in safetensors files, then a
// manifest; all of it synced in a folder under a temporary name, which is then renamed. A crash at
// any moment leaves the one before. Errors of files and folders blame storage. One writer (rank 0);
// one thread.
class CheckpointFolder {
 public:
  CheckpointFolder(std::string path, int64_t keep);

  // Makes the folder where it isn't there, and removes what a crash left half done.
  Status prepare();

  // The newest that verifies; those that don't are passed over with a line in the log. None: null.
  // An error only where the folder itself can't be read.
  Result<std::optional<VerifiedCheckpoint>> newest() const;

  // Writes the checkpoint of manifest.position.step (over one of that step that was there), then
  // removes the oldest ones so that `keep` remain. `collect` hands the tensors of the files to the
  // sink, in their order. The files' digests are filled in. Errors, also those of `collect`, leave
  // the older ones as they were.
  using Collect = std::function<Status(parallel::StateSink&)>;
  Status save(Manifest manifest, std::vector<StateFile> files, const Collect& collect);

 private:
  std::string folder_of(int64_t step) const;
  Status write_files(const std::string& folder, Manifest manifest, std::vector<StateFile> files,
                     const Collect& collect) const;
  void prune(int64_t newest_step) const;

  std::string path_;
  int64_t keep_;
};

// Reads the manifest in `path` and compares every file with it. kCorrupt, kNotFound.
Result<VerifiedCheckpoint> verify_checkpoint(const std::string& path);

}  // namespace lockstep::train
