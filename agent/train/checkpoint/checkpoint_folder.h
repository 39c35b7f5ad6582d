#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/train/checkpoint/manifest.h"
#include "agent/train/checkpoint/owner.h"
#include "agent/train/checkpoint/storage.h"
#include "common/base/result.h"

namespace lockstep::train {

// A checkpoint that was moved out of the way: the name of its folder now, and why.
struct SetAside {
  int64_t step = -1;
  std::string name;
  std::string reason;
};

struct StoredManifest {
  std::string text;
  Manifest manifest;
};

// The name of a step's checkpoint in a storage, and the steps of all of them, newest first.
std::string checkpoint_name(int64_t step);
Result<std::vector<int64_t>> checkpoint_steps(Storage& storage);
// Reads the manifest of a checkpoint in this folder. One that is missing or damaged is kCorrupt. In
// format 1, whose files have one checksum each, all of them are verified.
Result<StoredManifest> read_manifest(Storage& storage, const std::string& folder);

// The checkpoints of a job in a storage: complete ones in folders `step-00000500`, unfinished ones
// under temporary names. docs/formats.md describes the folder. A crash at any moment leaves the
// complete ones as they are. Rank 0 has one; the other ranks write and read files of the folders
// that it names. One thread at a time.
//
// Errors: kCorrupt, of one checkpoint, which set_aside() puts out of the way; kConflict blaming the
// fence, if another round or job owns the storage; otherwise as storage says.
class CheckpointFolder {
 public:
  // The storage outlives it. At least one checkpoint is kept.
  CheckpointFolder(Storage& storage, OwnerRecord owner, int64_t keep);

  // Takes the storage over, and removes what earlier owners left half done, as far as possible.
  Status prepare();
  // The number by which other ranks know that they see the same storage (wait_for_owner).
  int64_t owner_number() const { return owner_.number(); }

  // Gives a corrupt checkpoint a name that does not count. Nothing removes it.
  Result<SetAside> set_aside(int64_t step, const std::string& reason);

  // The folder that all ranks of the owner write a checkpoint's files to. `save` counts the saves
  // of this round, so that no two of them use the same folder.
  static std::string unfinished_folder(const OwnerRecord& owner, int64_t step, int64_t save);
  // Completes the checkpoint of manifest.position.step, whose files were all written to `folder`
  // and read back. Then removes the oldest ones, so that `keep` remain.
  Status publish(const std::string& folder, const Manifest& manifest);
  // Removes an unfinished folder, as far as possible. An error only if the storage has another
  // owner, who may have removed it.
  Status abandon(const std::string& folder);

 private:
  void remove_what_nobody_reads();
  Status expect_files(const std::string& folder, const Manifest& manifest);
  Status make_room(int64_t step);
  void prune(int64_t newest_step);
  Status remove_checkpoint(int64_t step);
  Status remove_all_at_once(const std::string& folder, const std::string& removing);

  Storage& storage_;
  Ownership owner_;
  int64_t keep_;
};

}  // namespace lockstep::train
