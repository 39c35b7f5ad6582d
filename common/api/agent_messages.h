#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/api/training_job.h"
#include "common/api/world_assignment.h"
#include "common/base/json.h"
#include "common/base/result.h"

namespace lockstep {

// What controller and agent say to each other over HTTP, on the pod's address and kAgentPort, with
// `Authorization: Bearer <job token>`:
//   PUT /v1/assignment       Assignment  -> 200 AgentState; 409 {"error": ...} for an older round,
//                                           or another hash of the same round; 400, 401, 413
//   GET /v1/state?since=N&timeoutSeconds=S
//                                        -> 200 AgentState, at once if its sequence > N, else when
//                                           it changes or after S seconds (at most 30)
// and without a token: GET /healthz -> 200 "ok", GET /metrics (Prometheus text).
// Both take `protocol=V` in the query: the newest version of the protocol that the asker reads,
// 1 where it names none. The answer is in that version, or in the agent's own newest one where that
// is older; an assignment is in the version that the agent last answered in, in the oldest one
// before it has. So either side may be the newer one, as in an upgrade and its rollback, as long as
// the other's version is within [kProtocolOldest, kProtocolNewest]. Unknown members are passed
// over, but a member that the older side refuses by name ("not in this version", as
// checkpoint.onPreemption) or a value that it doesn't know needs a new version. These are
//   1  the first
//   2  of each worker the state tells whom it waits for (`wait`), and whether it is `lifeless`
inline constexpr int64_t kProtocolNewest = 2;
inline constexpr int64_t kProtocolOldest = 1;
constexpr bool is_served(int64_t protocol) {
  return kProtocolOldest <= protocol && protocol <= kProtocolNewest;
}
inline constexpr int64_t kAgentPort = 29400;
inline constexpr size_t kAgentStateBytesMax = 64 * 1024;
inline constexpr size_t kAssignmentBytesMax = 4 * 1024 * 1024;

// What an agent is to do. Level-triggered: the same one again changes nothing.
struct Assignment {
  int64_t protocol = kProtocolNewest;
  std::string action =
      "Run";  // Run: workers of this round; Exit: end them, then the agent with exit_code
  int64_t exit_code = 0;  // of the agent, for Exit
  std::string job_name;
  std::string job_namespace;
  int64_t node_index = 0;
  std::string hash;       // world_hash(world)
  WorldAssignment world;  // world.round fences: older ones are refused
  // The program, as the job's spec has it.
  std::optional<TrainSpec> train;
  std::vector<std::string> command;
  std::vector<std::string> variables;  // that a command gets beside torchrun's
  int64_t restarts = 0;                // of the job so far, and how many it may have
  int64_t max_restarts = 0;
  CheckpointSpec checkpoint;
  int64_t gpus_per_node = 0;
  int64_t threads_per_process = 0;
  int64_t rendezvous_timeout_seconds = 60;
  int64_t hang_seconds = kHangSeconds;  // as in WorkerConfig
  int64_t grace_period_seconds = 30;    // from SIGTERM to SIGKILL of the workers

  bool operator==(const Assignment&) const = default;
};

enum class WorkerPhase : uint32_t {  // in the order in which a worker passes through them
  kStarting = 0,
  kForming = 1,       // connecting to the other ranks
  kLoading = 2,       // data, checkpoint
  kBroadcasting = 3,  // parameters from rank 0
  kTraining = 4,
  kSaving = 5,  // a checkpoint; then kTraining again
  kValidating = 6,
  kFinishing = 7,  // last checkpoint, sample
  kDone = 8,
};
std::string_view worker_phase_name(WorkerPhase phase);
Result<WorkerPhase> worker_phase_from_name(std::string_view name);

// A rank's program stands in an operation, in which nothing has moved for a while.
struct WorkerWait {
  std::string operation;           // "all_reduce #17", of the built-in loop's communicator
  std::string ranks;               // of the group, "0-3"; cut where it is long
  int64_t group_size = 0;          // ranks of the group
  std::vector<int64_t> waits_for;  // ranks of the world; of many, some
  double seconds = 0;              // so far

  bool operator==(const WorkerWait&) const = default;
};

// One process of the current (or last) round.
struct WorkerState {
  int64_t rank = 0;
  int64_t local_rank = 0;
  int64_t pid = 0;
  bool running = false;
  int64_t exit_code = 0;  // once not running; 128 + signal where a signal ended it
  int64_t signal = 0;     // that ended it, 0 if none
  std::string
      reason;  // "", Completed, Error, Signal, OOMKilled, StartError, Hang, Stopped (by the agent)
  std::string log_tail;  // the end of its stderr, at most 2 KiB, once it failed
  WorkerPhase phase = WorkerPhase::kStarting;
  int64_t step = 0;
  int64_t suspect_rank = -1;      // whom its communicator blames, -1: nobody
  double failed_seconds_ago = 0;  // once it failed
  std::optional<WorkerWait> wait;
  bool is_lifeless = false;  // it runs, but has given no sign of life for a while
  bool lacks_bf16 = false;   // its device can't multiply bf16

  bool operator==(const WorkerState&) const = default;
};

// The whole state of an agent.
struct AgentState {
  int64_t protocol = kProtocolNewest;
  int64_t sequence = 0;  // grows with every change; starts anew with `boot_id`
  std::string boot_id;   // of this agent process
  std::string job_uid;
  int64_t node_index = 0;
  int64_t incarnation = 0;
  int64_t round = 0;  // that it carries out; 0: none yet
  std::string hash;
  std::string phase;  // Idle, Starting, Running, Completed, Failed, Stopping, Exiting
  std::vector<WorkerState> workers;
  // Of the built-in loop: from the node's lowest rank, rank 0's counts. Of a command: step and loss
  // from the lowest rank that reports any; samples, tokens and their rates of all that do.
  std::optional<ProgressStatus> progress;
  std::optional<CheckpointStatus> last_checkpoint;
  double failed_seconds_ago = 0;  // since the first failure of the round; 0 where none

  bool operator==(const AgentState&) const = default;
};

// "SIGKILL"; "" for what is no signal of Linux.
std::string signal_name(int64_t signal);

Json to_json(const Assignment& assignment);
Result<Assignment> assignment_from_json(const Json& document);
// In the version state.protocol, without what that doesn't have. At most kAgentStateBytesMax: log
// tails are shortened until it fits.
Json to_json(const AgentState& state);
// Of one in a version that isn't served, that version is read and nothing else.
// A worker's reason that isn't a word of letters is read as Error; what it waits for is printable.
Result<AgentState> agent_state_from_json(const Json& document);

}  // namespace lockstep
