#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "agent/comm/communicator.h"
#include "agent/parallel/compose.h"
#include "agent/train/checkpoint/checkpoint_folder.h"
#include "agent/train/checkpoint/state_tensors.h"
#include "agent/train/progress_reporter.h"
#include "common/base/result.h"

namespace lockstep::train {

// Loads the newest checkpoint that is what its writers wrote. All ranks do it together, and each
// reads and verifies its share of the state, so the storage is read once however many ranks hold
// the same values. A corrupt checkpoint is set aside, and the one before is tried. An error of the
// storage (after what RetryingStorage tries) is no corruption: it ends the round.
// Rank 0 publishes its notes, unless the round has begun to train: then the caller does, once it
// knows where training goes on.
struct ResumeParts {
  comm::Communicator& world;
  parallel::Composition& model;
  Storage& storage;
  CheckpointFolder* folder = nullptr;  // rank 0's
  ProgressReporter& progress;
  const StateTable& table;
  // Rank 0's: whether the job may continue from that checkpoint.
  std::function<Status(const Manifest& manifest, const std::string& path)> check;
  int64_t below = std::numeric_limits<int64_t>::max();  // checkpoints of earlier steps count
};

// Returns the manifest of the checkpoint that was loaded, the same on all ranks. Nothing if there
// is none, and then the state is as it was.
Result<std::optional<Manifest>> resume(const ResumeParts& parts);

}  // namespace lockstep::train
