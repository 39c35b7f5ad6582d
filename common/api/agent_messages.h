#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/api/training_job.h"
#include "common/api/world_assignment.h"
#include "common/base/json.h"
#include "common/base/result.h"

namespace lockstep {

// The protocol between controller and agent: HTTP on the pod's address and kAgentPort, in a session
// with the job's token as its secret and the pod's name as the server's
// (common/http/signed_session.h):
//   PUT /v1/assignment       Assignment  -> 200 AgentState; 409 {"error": ...} for an older round,
//                                           or another hash of the same round; 400, 401, 413
//   GET /v1/state?since=N&timeoutSeconds=S
//                                        -> 200 AgentState, immediately if its sequence > N, else
//                                           when it changes or after S seconds (at most 30).
//                                           With &progressMilliseconds=P, a change of mere progress
//                                           (steps, speed, checkpoints, memory) is told only after
//                                           P ms; older agents ignore P
// and without a session: GET /healthz -> 200 "ok", GET /metrics (Prometheus text).
//
// Older agents know no sessions. They want `Authorization: Bearer <job token>`, which a reader of
// the network can repeat. The controller marks the pods it makes with an agent that knows sessions
// (kRequestsVariable, and an annotation for itself): such an agent refuses the token, and the
// controller never sends it one. It sends the token only to an agent without that mark that has
// not shown this process of the controller that it knows sessions.
//
// In a job with spec.security.encryption: required, sessions are encrypted in both directions. The
// mark of its pods says that, too: pods of an earlier controller keep sessions without encryption
// until they are made anew.
//
// Both requests take `protocol=V` in the query: the newest protocol version that the client reads;
// 1 if absent. The agent replies in that version, or in its own newest one if that is older. An
// assignment uses the version of the agent's last reply, or the oldest version before the first
// reply. So either side may be newer, as during an upgrade and its rollback, as long as the other
// side's version is within [kProtocolOldest, kProtocolNewest].
//
// Unknown members are ignored. A new version is needed for a member that the older side refuses by
// name ("not in this version"), and for a value that it does not know. Agents of versions 1 to 3
// may refuse checkpoint.onPreemption so: an assignment tells only gracePeriodSeconds. Versions:
//   1  the first
//   2  the state of each worker reports what it waits for (`wait`) and whether it is `lifeless`
//   3  a world may leave out node indices, has roles (`role` of a node), and tells its `layout`;
//      `train` may have an mlp, and the optimizers sgd and adagrad
//   4  workers carry out a layout that shards, offloads or exchanges state; the agent's state has
//      `holdings`
//   5  workers carry out a mesh with a tensor or pipeline axis, and record a timeline together
//   6  workers carry out the schedules zerobubble and pipedream, and stages of given sizes
//   7  workers encrypt what they send each other if the world says so (`encryption`); pipedream's
//      unit in flight is one micro-batch, not one batch as in version 6
//   8  workers share a batch that their number does not divide, and keep states in memory
//   9  workers roll back or skip a batch because of its loss (`losses`)
//  10  workers know the learning rates warmupStableDecay and step, keep moving averages (`ema`),
//      and read a table of pieces (`data.pieces`)
//  11  workers train convolutional networks, and drop out activations (`dropout`)
//  12  workers train click models; a world may have servers (`parameterServers`)
//  13  servers have copies, and views of a round change which of them count (`serversView`)
//  14  such a view may move a server to another pod; workers train BERTs, cut MLPs and
//      convolutional networks into the stages of a pipeline, and drop out in the latter
//  15  workers know the optimizer muon; views say which workers were started anew
//  16  views have places, and servers may be added to a round and leave it; workers train
//      convolutional networks whose parameters are on servers, send fewer bits to and from
//      servers, and rows may expire; the optimizer muon works on GPUs
inline constexpr int64_t kProtocolNewest = 16;
inline constexpr int64_t kProtocolOldest = 1;
constexpr bool is_served(int64_t protocol) {
  return kProtocolOldest <= protocol && protocol <= kProtocolNewest;
}
// Older agents refuse gaps in the node indices, and would train replicated whatever the layout is.
inline constexpr int64_t kProtocolWithLayouts = 3;
// Older workers refuse such layouts, and do not know all of their members.
inline constexpr int64_t kProtocolWithSharing = 4;
// Older workers refuse such a mesh, and do not compare their clocks for a timeline.
inline constexpr int64_t kProtocolWithMeshes = 5;
// Older workers refuse such schedules, and would cut the model into other stages.
inline constexpr int64_t kProtocolWithStages = 6;
// Older workers would send everything in the clear, and run pipedream's passes in another order.
inline constexpr int64_t kProtocolWithEncryption = 7;
// Older workers refuse such a batch, and keep no states.
inline constexpr int64_t kProtocolWithUnevenBatches = 8;
// Older workers would fail for a loss that is not finite, and not look for spikes.
inline constexpr int64_t kProtocolWithLossRules = 9;
// Older workers refuse such a learning rate's schedule, keep no moving averages and know no pieces.
inline constexpr int64_t kProtocolWithAverages = 10;
// Older workers know no such family or presets, and would drop out nothing.
inline constexpr int64_t kProtocolWithConvnets = 11;
// Older workers know no such families, and refuse servers.
inline constexpr int64_t kProtocolWithServers = 12;
// Older agents and workers know no views but the first one.
inline constexpr int64_t kProtocolWithCopies = 13;
// Older agents refuse views in which a server has moved, and rounds that began with another pod.
inline constexpr int64_t kProtocolWithMoves = 14;
// Older workers cut only transformers into stages, and refuse dropout in convolutional networks.
inline constexpr int64_t kProtocolWithAllStages = 14;
// Older workers know no such family or presets.
inline constexpr int64_t kProtocolWithBerts = 14;
// Older agents refuse a view that has workers.
inline constexpr int64_t kProtocolWithNewWorkers = 15;
// Older workers refuse such an optimizer.
inline constexpr int64_t kProtocolWithMuon = 15;
inline constexpr int64_t kProtocolWithMuonOnGpus = 16;
// Older agents refuse a view that has places, and so servers that are added to a round.
inline constexpr int64_t kProtocolWithPlaces = 16;
// Older workers would send all bits, and older servers would keep all rows.
inline constexpr int64_t kProtocolWithTransfers = 16;
// Older servers would update running statistics as parameters.
inline constexpr int64_t kProtocolWithServedConvnets = 16;
inline constexpr int64_t kAgentPort = 29400;
// Set in pods whose agents refuse the token, and sessions without encryption.
inline constexpr char kRequestsVariable[] = "LOCKSTEP_REQUESTS";
inline constexpr char kRequestsSigned[] = "signed";
inline constexpr char kRequestsEncrypted[] = "encrypted";  // refuses both
inline constexpr size_t kAgentStateBytesMax = 64 * 1024;
inline constexpr size_t kAssignmentBytesMax = 4 * 1024 * 1024;

// Returns whether all micro-batches of all ranks have the same size.
bool shares_evenly(const BatchSpec& batch, int64_t data_ranks);

// Services that an assignment asks of the workers, in addition to its world and training.
struct WorkerWishes {
  bool keeps_states = false;  // CheckpointSpec::memory
  LossRules losses = {};
  bool has_copies = false;        // ParameterServersSpec::copies
  bool has_transfers = false;     // its precisions other than fp32, or its rows' life
  bool has_moved_server = false;  // a view of the round's servers says so
  bool has_new_worker = false;    // likewise
  bool has_places = false;        // the view has them
  bool has_gpus = false;          // TrainingJobSpec::gpusPerNode
};

WorkerWishes wishes_of(const TrainingJobSpec& spec);

// Returns the oldest version in which an assignment may tell of this world and this training.
int64_t protocol_needed(const WorldAssignment& world, const std::optional<TrainSpec>& train,
                        const WorkerWishes& wishes = {});

// Returns the name of the pod of a job's node, which is also its agent's name in sessions.
inline std::string pod_name(std::string_view job, MemberRole role, int64_t index,
                            int64_t incarnation) {
  return std::string(job) + "-" + std::string(member_role_name(role)) + "-" +
         std::to_string(index) + "-" + std::to_string(incarnation);
}
inline std::string worker_pod_name(std::string_view job, int64_t index, int64_t incarnation) {
  return pod_name(job, MemberRole::kWorker, index, incarnation);
}
// The environment variable of pods whose role is not worker.
inline constexpr char kRoleVariable[] = "LOCKSTEP_ROLE";

// A controller's order to an agent. Level-triggered: sending the same assignment again is a no-op.
struct Assignment {
  int64_t protocol = kProtocolNewest;
  std::string action =
      "Run";  // Run: run this round's workers; Exit: stop them, then exit with exit_code
  int64_t exit_code = 0;  // the agent's exit code, for Exit
  std::string job_name;
  std::string job_namespace;
  int64_t node_index = 0;
  std::string hash;       // world_hash(world)
  WorldAssignment world;  // world.round is the fencing token: the agent refuses older rounds
  // The program, as in the job's spec.
  std::optional<TrainSpec> train;
  std::vector<std::string> command;
  std::optional<ParameterServersSpec> parameter_servers;  // given if the world has servers
  // The newest view of the round's servers (servers_view.h); empty: the first one. The agent gives
  // it to its processes. If it has the agent's own server as gone, and since a later view than that
  // in which the server's processes were started, they are killed and started anew.
  std::string servers_view;
  std::vector<std::string> variables;  // for a command, in addition to torchrun's
  int64_t restarts = 0;                // of the job so far; max_restarts is the limit
  int64_t max_restarts = 0;
  CheckpointSpec checkpoint;
  int64_t gpus_per_node = 0;
  int64_t threads_per_process = 0;
  int64_t rendezvous_timeout_seconds = 60;
  int64_t hang_seconds = kHangSeconds;  // as in WorkerConfig
  int64_t command_hang_seconds = 0;     // as command_hang_seconds(); 0: no limit
  LossRules losses = {};                // as in WorkerConfig
  int64_t grace_period_seconds = 30;    // from SIGTERM to SIGKILL of the workers

  bool operator==(const Assignment&) const = default;
};

enum class WorkerPhase : uint32_t {  // in the order in which a worker passes through them
  kStarting = 0,
  kForming = 1,       // connecting to the other ranks
  kLoading = 2,       // loading data and a checkpoint
  kBroadcasting = 3,  // getting the first parameters
  kTraining = 4,
  kSaving = 5,  // saving a checkpoint; then kTraining again
  kValidating = 6,
  kFinishing = 7,  // last checkpoint, sample text
  kDone = 8,
};
std::string_view worker_phase_name(WorkerPhase phase);
Result<WorkerPhase> worker_phase_from_name(std::string_view name);

// An operation in which a rank has made no progress for a while.
struct WorkerWait {
  std::string operation;           // "all_reduce #17", in the built-in loop's communicator
  std::string ranks;               // ranks of the group, "0-3"; truncated if long
  int64_t group_size = 0;          // ranks of the group
  std::vector<int64_t> waits_for;  // world ranks; a subset if there are many
  double seconds = 0;              // so far

  bool operator==(const WorkerWait&) const = default;
};

// Seconds of a rank's steps by part, averaged over its last steps, as StepNumbers has them. The
// rest of a step's seconds is communication: mostly waiting for others.
struct WorkerSpeed {
  double step_seconds = 0;
  double data_seconds = 0;
  double forward_seconds = 0;
  double backward_seconds = 0;
  double update_seconds = 0;

  bool operator==(const WorkerSpeed&) const = default;
};
inline constexpr double kStepSecondsMax = 1e6;  // of WorkerSpeed and RoundBeginning

// The job's checkpoints in storage, as the round's rank 0 reports them (StorageNotes).
struct StorageState {
  int64_t saved = 0;             // complete checkpoints of this round
  int64_t failed_step = -1;      // the newest save, of this step, failed; -1: it did not
  std::string failure;           // why; empty: it did not
  int64_t set_aside = 0;         // corrupt checkpoints that this round set aside
  int64_t set_aside_step = -1;   // of the newest one of them
  std::string set_aside_reason;  // why; empty: there are none
  int64_t resumed_step = -1;     // where this round began to train; -1: not known yet
  bool from_memory = false;      // the state of resumed_step was in memory
  int64_t skips = 0;             // how often training went on without batches, in the whole job
  std::string skip;              // the newest one: which batches, and why; empty: there was none

  bool operator==(const StorageState&) const = default;
};

// One process of the current (or last) round.
struct WorkerState {
  int64_t rank = 0;
  int64_t local_rank = 0;
  int64_t pid = 0;
  bool running = false;
  int64_t exit_code = 0;  // set once not running; 128 + signal if a signal ended it
  int64_t signal = 0;     // the signal that ended it, 0 if none
  std::string reason;  // "", Completed, Error, Signal, OOMKilled, StartError, Hang, LossNotFinite,
                       // LossSpike, Stopped (by the agent)
  std::string log_tail;  // the end of its stderr, at most 2 KiB, after a failure
  WorkerPhase phase = WorkerPhase::kStarting;
  int64_t step = 0;
  int64_t micro_batch = -1;       // of the step, whose pass it issued last; -1: none
  int64_t suspect_rank = -1;      // the rank that its communicator blames, -1: none
  double failed_seconds_ago = 0;  // set after a failure
  std::optional<WorkerWait> wait;
  bool is_lifeless = false;          // it runs, but has shown no sign of life for a while
  bool lacks_bf16 = false;           // its device can't multiply bf16
  int64_t servers_view = 0;          // the newest that the process follows; 0: none yet
  bool is_filling = false;           // a server: it is filling the one that joins
  std::optional<WorkerSpeed> speed;  // of the built-in loop, once it is known in this round

  bool operator==(const WorkerState&) const = default;
};

// How long the beginning of a round took on a node.
struct RoundBeginning {
  double abort_seconds = 0;  // from the assignment until the round before had left
  double start_seconds = 0;  // from then until each rank connects to others; a command's: runs

  bool operator==(const RoundBeginning&) const = default;
};

// The whole state of an agent.
struct AgentState {
  int64_t protocol = kProtocolNewest;
  int64_t sequence = 0;  // grows with every change; restarts with a new boot_id
  std::string boot_id;   // identifies this agent process
  std::string job_uid;
  int64_t node_index = 0;
  int64_t incarnation = 0;
  int64_t round = 0;  // the round it runs; 0: none yet
  std::string hash;
  int64_t servers_view = 0;     // the newest view that it was assigned; 0: of none
  int64_t servers_started = 0;  // the view in which its processes were started; 0: of none
  std::string phase;            // Idle, Starting, Running, Completed, Failed, Stopping, Exiting
  std::vector<WorkerState> workers;
  std::optional<RoundBeginning> beginning;  // of the round; once it is over
  // For the built-in loop: reported by the node's lowest rank; the controller uses rank 0's. For a
  // command: step and loss of the lowest rank that reports any; sums of samples, tokens and their
  // rates over all ranks that report them.
  std::optional<ProgressStatus> progress;
  std::optional<CheckpointStatus> last_checkpoint;
  // The largest of each number over the node's ranks; absent until they have allocated memory.
  std::optional<HoldingsStatus> holdings;
  std::optional<StorageState> storage;  // only on the node that has rank 0
  double failed_seconds_ago = 0;        // since the first failure of the round; 0 if none

  bool operator==(const AgentState&) const = default;
};

// Returns whether the two differ at most in what may change at every step: progress, memory, the
// newest checkpoint, and which saves succeeded.
bool is_mere_progress(const AgentState& before, const AgentState& after);

// Returns the name, such as "SIGKILL"; "" if Linux has no such signal.
std::string signal_name(int64_t signal);

// Returns the place in the round of the node that the assignment is for: in its world, or of a
// server that was added later, as its view says; nullopt if the round leaves it out.
std::optional<int64_t> find_place_in_round(const Assignment& assignment);
int64_t place_in_round(const Assignment& assignment);  // likewise; it has one
int64_t rank_in_round(const Assignment& assignment, int64_t local_rank);

Json to_json(const Assignment& assignment);
Result<Assignment> assignment_from_json(const Json& document);
// Writes the version state.protocol, without members that version does not have. The result has at
// most kAgentStateBytesMax bytes: log tails are shortened until it fits.
Json to_json(const AgentState& state);
// If the document's version is not served, only `protocol` is read. A worker's reason that is not
// made of letters is read as Error. Unprintable characters in `wait`, and control characters in
// `storage`, are replaced.
Result<AgentState> agent_state_from_json(const Json& document);

}  // namespace lockstep
