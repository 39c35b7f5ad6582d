#pragma once

#include <cstdint>
#include <string>

#include "common/api/training_job.h"
#include "common/api/world_assignment.h"
#include "common/base/json.h"
#include "common/base/result.h"

namespace lockstep {

// The JSON file that an agent writes for one worker process: `lockstep-worker --config FILE`. It
// does not contain the secret; the worker reads that from token_file.
struct WorkerConfig {
  std::string job_name;
  WorldAssignment world;
  std::string hash;     // world_hash(world)
  std::string boot_id;  // of the agent process that starts the worker; empty: an older agent
  int64_t rank = 0;
  int64_t gpu = -1;  // index among the GPUs that the process sees; -1: compute on the CPU
  int64_t gpus = 0;  // of the whole job
  TrainSpec train;
  std::optional<ParameterServersSpec> parameter_servers = {};  // given if the world has servers
  std::string servers_view = {};  // in which the process begins (servers_view.h)
  CheckpointSpec checkpoint;      // path empty: nothing is stored
  int64_t threads = 1;
  int64_t cpus = 0;        // CPUs that the pod may use; 0: all of the machine's
  std::string token_file;  // the job's token; each round's transport key is derived from it
  int64_t rendezvous_timeout_seconds = 60;
  // Minimum time that ranks wait in a step before a rank counts as hung; see hang_limit.h.
  int64_t hang_seconds = kHangSeconds;
  LossRules losses = {};     // what the ranks do about losses
  int64_t progress_fd = -1;  // inherited memfd with this rank's ProgressPage; -1: none
  // Inherited memfd shared by the ranks of this node, which size it (empty at first); -1: none.
  int64_t shm_fd = -1;
  // Inherited memfd for this rank's states in memory, which the agent keeps from round to round;
  // -1: none.
  int64_t state_fd = -1;
  // Inherited socket through which the agent offers later rounds (round_channel.h); -1: the process
  // ends with its round.
  int64_t rounds_fd = -1;

  bool operator==(const WorkerConfig&) const = default;
};

Json to_json(const WorkerConfig& config);
Result<WorkerConfig> worker_config_from_json(const Json& document);

// Exit codes of lockstep-worker other than 0, by the blame of the error that ends it
// (agent/train/exit_code.h). A peer's failure has its own codes, so that the controller does not
// blame the rank that reports it. controller/plan/damage.h says what follows from them.
inline constexpr int kExitOwnError = 1;
inline constexpr int kExitBadConfig = 2;
inline constexpr int kExitDataError = 3;
inline constexpr int kExitPeerLost = 4;      // another rank left or refused
inline constexpr int kExitStorageError = 5;  // a checkpoint or the metrics, reading or writing
inline constexpr int kExitNotFinite = 6;     // the loss is NaN or infinite
inline constexpr int kExitPortTaken = 7;     // its rendezvous port is in use
inline constexpr int kExitPeerHung = 8;      // another rank did not reach a collective in time
inline constexpr int kExitNoDevice = 9;      // the GPU it was assigned does not exist
inline constexpr int kExitFenced = 10;       // another job, or a newer round, owns its checkpoints
inline constexpr int kExitLossSpike = 11;    // the loss has a spike, and the job's rules say Fail
inline constexpr int kExitStopped = 143;     // SIGTERM: saved a checkpoint (if it has a path)

}  // namespace lockstep
