#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/api/training_job.h"
#include "controller/plan/pass.h"

namespace lockstep {

inline constexpr char kAgentSilent[] = "AgentSilent";  // the reason of a pod that was given up
inline constexpr char kAgentDisagrees[] = "AgentDisagrees";

// What is broken in a job's present round, or among the pods gathered for the next one.
struct Damage {
  std::vector<int64_t> lost;        // node indices whose pod has to be made anew
  bool is_new = false;              // false: all of it belongs to the failure in status
  bool ends_round = false;          // false: only pods that were to join it are lost
  std::vector<std::string> unseen;  // members' pods that the cache doesn't have
  // rank, nodeIndex, node, exitCode, reason, message of the guilty one: the earliest worker that
  // failed by itself, else a lost pod, else whom the messengers (kExitPeerLost, kExitPeerHung)
  // blame most.
  std::optional<FailureStatus> culprit;
  // Only messengers have spoken so far (or, with a command, who may have died of another one's
  // failure), and somebody guilty may yet, or may be gone with its machine: wait until then.
  std::optional<TimePoint> undecided_until;
};

Damage assess_damage(const Pass& pass);

// Of the worker itself where the agent says so (older ones don't), else of the first on its node.
double failed_seconds_ago(const AgentState& state, const WorkerState& worker);

// The built-in loop would end with this exit code again: what it was told or read is wrong, or the
// loss isn't finite, to which the same bits lead again.
bool is_repeated_by_a_restart(int64_t exit_code);
// It would do so in the same pod: the GPU that it was to use is not there.
bool is_repeated_in_its_pod(int64_t exit_code);

// What is left of spec.failure.pendingTimeoutSeconds for a pod that doesn't run yet; nullopt where
// nothing limits it, as of one that is to join a round: that goes on without it. It is over only
// when it is by both the server's clock and our own, which counts from when this process first saw
// the pod: the two may differ by more than a pod has.
std::optional<Duration> pending_left(const Pass& pass, const PodView* pod);

// How long an agent may be silent before its pod is given up: where its silence is its own, and
// now.
Duration silence_max(const Pass& pass);
Duration patience(const Pass& pass);

}  // namespace lockstep
