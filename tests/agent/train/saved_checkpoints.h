// Checkpoints saved and loaded through storage as the ranks of a round do it, without their
// threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/train/checkpoint/checkpoint_folder.h"
#include "agent/train/checkpoint/folder_storage.h"
#include "tests/agent/train/memory_file_system.h"
#include "tests/agent/train/written_state.h"

namespace lockstep::train {

inline constexpr char kRoot[] = "/data/run";

inline OwnerRecord owner_of_round(int64_t round) {
  return {.job_uid = "uid",
          .job_name = "job",
          .round = round,
          .boot_id = "boot" + std::to_string(round)};
}

// Returns the state that a round of the job writes at a step: two rounds write different bits.
WrittenState state_at(int64_t round, int64_t step);
Manifest manifest_at(int64_t round, int64_t step);

// A process of a round that keeps checkpoints in kRoot: its rank 0 and the other ranks.
class RoundOfJob {
 public:
  RoundOfJob(FileSystem& files, int64_t round, int64_t keep)
      : round_(round), storage_(kRoot, files), folder_(storage_, owner_of_round(round), keep) {}

  // Begins: makes the root, and becomes its owner.
  Status prepare();
  // Saves a step as a Saver does.
  Status save(int64_t step);
  CheckpointFolder& folder() { return folder_; }
  FolderStorage& storage() { return storage_; }

 private:
  Status write_and_publish(const std::string& folder, int64_t step);

  int64_t round_;
  FolderStorage storage_;
  CheckpointFolder folder_;
  int64_t saves_ = 0;
};

// Loads a checkpoint as a whole. An error, or which round wrote these bits; -1: the bits are
// those of no round at this step.
Result<int64_t> load(Storage& storage, int64_t step);
// As load(), of a folder.
Result<int64_t> load_folder(Storage& storage, const std::string& folder, int64_t step);

// The names directly in kRoot, sorted, without owners.
std::vector<std::string> names_in(const MemoryFileSystem& files);

}  // namespace lockstep::train
