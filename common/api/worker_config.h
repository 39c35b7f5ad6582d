#pragma once

#include <cstdint>
#include <string>

#include "common/api/training_job.h"
#include "common/api/world_assignment.h"
#include "common/base/json.h"
#include "common/base/result.h"

namespace lockstep {

// The JSON file that an agent writes for one worker process: `lockstep-worker --config FILE`.
// The secret is not in it: the worker reads it from token_file.
struct WorkerConfig {
  std::string job_name;
  WorldAssignment world;
  std::string hash;  // world_hash(world)
  int64_t rank = 0;
  int64_t gpu = -1;  // which of the GPUs that the process sees it computes on; -1: on the CPU
  int64_t gpus = 0;  // of the whole job
  TrainSpec train;
  CheckpointSpec checkpoint;  // path empty: nothing is stored
  int64_t threads = 1;
  int64_t cpus = 0;        // that the pod may use; 0: all of the machine's
  std::string token_file;  // the job's token; the key of a round's transport is derived from it
  int64_t rendezvous_timeout_seconds = 60;
  // Until a rank for which the others wait in a step counts as hung, at least; see hang_limit.h.
  int64_t hang_seconds = kHangSeconds;
  int64_t progress_fd = -1;  // inherited memfd with this rank's ProgressPage; -1: none
  int64_t shm_fd = -1;  // inherited memfd shared by the ranks of this node, empty at first, sized
                        // by them; -1: none

  bool operator==(const WorkerConfig&) const = default;
};

Json to_json(const WorkerConfig& config);
Result<WorkerConfig> worker_config_from_json(const Json& document);

// Exit codes of lockstep-worker beside 0. A peer's failure is told apart from one's own, so that
// the controller doesn't blame the messenger.
inline constexpr int kExitBadConfig = 2;
inline constexpr int kExitDataError = 3;
inline constexpr int kExitPeerLost = 4;      // another rank left, or refused
inline constexpr int kExitStorageError = 5;  // a checkpoint couldn't be written
inline constexpr int kExitNotFinite = 6;     // the loss is NaN or infinite
inline constexpr int kExitPortTaken = 7;     // its rendezvous port is in use
inline constexpr int kExitPeerHung = 8;      // another rank did not come to a collective in time
inline constexpr int kExitNoDevice = 9;      // the GPU that it was to use is not there
inline constexpr int kExitStopped =
    143;  // SIGTERM: it saved a checkpoint, if it has a path, and left

}  // namespace lockstep
