#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/api/training_job.h"
#include "controller/plan/pass.h"

namespace lockstep::plan {

// The reason for giving up a pod with a silent agent.
inline constexpr char kAgentSilent[] = "AgentSilent";
inline constexpr char kAgentDisagrees[] = "AgentDisagrees";
// The reason for a rank that others lost, and that reported nothing itself.
inline constexpr char kSuspected[] = "Suspected";

// Damage to a job's current round, or to the pods gathered for the next one.
struct Damage {
  std::vector<int64_t> lost;        // node indices whose pod must be recreated
  bool is_new = false;              // false: all of it belongs to the failure already in status
  bool ends_round = false;          // false: only pods that were to join the round are lost
  std::vector<std::string> unseen;  // members' pods that the cache does not have
  // Rank, nodeIndex, node, exitCode, reason and message of the culprit. The first that exists of:
  // - the earliest worker that failed on its own, if a restart would repeat its failure
  // - a lost pod of the round
  // - the earliest worker that failed on its own
  // - the rank blamed by most workers that exit with kExitPeerLost or kExitPeerHung
  // - a lost pod that was to join the round
  // - a member that disagrees with status about the round
  std::optional<FailureStatus> culprit;
  // Set if so far only workers that lost a peer have reported (or, for a command, only workers that
  // may have died of another's failure). The culprit may still report, or be found lost with its
  // machine: wait until then.
  std::optional<TimePoint> wait_for_culprit_until;
};

Damage assess_damage(const Pass& pass);

// Returns whether the agent ends its workers although no assignment says so, because its pod is
// being stopped.
bool is_being_stopped(const AgentState& state);

// Returns the worker's own value if the agent reports one (older agents do not), else that of the
// first failure on its node.
double failed_seconds_ago(const AgentState& state, const WorkerState& worker);

// Returns whether the built-in loop must not be restarted after this exit code:
// - Its configuration or data is wrong, or its rules end it because of a loss, which the same bits
//   reproduce.
// - It met another job's mark in the checkpoint folder. Two jobs that restart would push each other
//   out forever.
bool is_repeated_by_a_restart(int64_t exit_code);
// Returns whether it would do so only in the same pod: the GPU it needs is missing there.
bool is_repeated_in_its_pod(int64_t exit_code);

// Returns what is left of spec.failure.pendingTimeoutSeconds for a pod that does not run yet.
// nullopt if nothing limits it, as for a pod that is to join a round: the round continues without
// it. The time is over only when both the server's clock and our own say so, because they may
// differ by more than the timeout. Ours counts from when this process first saw the pod.
std::optional<Duration> pending_left(const Pass& pass, const PodView* pod);

}  // namespace lockstep::plan
