#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/api/agent_messages.h"
#include "common/api/training_job.h"
#include "common/base/clock.h"

namespace lockstep::plan {

// A job's ledger consists of status.failures (status.lastFailure is its newest entry), status.lost
// (what all failures have cost) and status.trainedSeconds (the time in between).

// The parts of a recovery in their order, as in status.failures[].recovery. Its recomputeSeconds
// come after it, and are counted apart.
struct RecoveryPart {
  const char* name;
  std::optional<double> RecoveryStatus::*seconds;
};
inline constexpr std::array<RecoveryPart, 8> kRecoveryParts = {{
    {"detect", &RecoveryStatus::detectSeconds},
    {"decide", &RecoveryStatus::decideSeconds},
    {"wait", &RecoveryStatus::waitSeconds},
    {"pods", &RecoveryStatus::podsSeconds},
    {"abort", &RecoveryStatus::abortSeconds},
    {"respawn", &RecoveryStatus::respawnSeconds},
    {"form", &RecoveryStatus::formSeconds},
    {"restore", &RecoveryStatus::restoreSeconds},
}};

// Number of entries kept. Failure numbers keep counting beyond it.
inline constexpr size_t kFailuresKept = 10;

// Adds the failure with the next number, and cuts the logs of older ones to about their last line.
// Accounts for the time until the failure: as trained, or as lost if the job had not recovered yet.
// Call it before the conditions change, because they tell which.
void record_failure(TrainingJobStatus& status, FailureStatus failure);

// Returns when the newest failure was over, or when it happened if it is not over; nullopt if there
// is none. The ledger counts the next failure from no earlier than that, so that no time counts
// twice.
std::optional<WallTime> end_of_newest(const TrainingJobStatus& status);

// Milestones of the recovery in progress, each recorded once: all pods of the next round run; all
// ranks are connected; all ranks train again. No-ops unless Restarting is true. The parts of a
// finished recovery add up to its recoverySeconds, whatever the wall clock did meanwhile.
// `beginning`: the longest on any node, if all told; it is taken off the time until the ranks are
// connected.
void note_pods(TrainingJobStatus& status, WallTime now);
void note_formed(TrainingJobStatus& status, WallTime now,
                 const std::optional<RoundBeginning>& beginning);
void note_recovered(TrainingJobStatus& status, WallTime now,
                    const std::optional<RoundBeginning>& beginning);

// Returns for people what the newest failure's recovery, which is over, took:
// "all ranks train again, 1.84 s after failure 3: detect 0.3, decide 0.02, ... s".
std::string recovery_text(const FailureStatus& failure);

// Closes the current interval. Accounts for the time until the job is suspended or ends: as
// trained, or as lost to a recovery that never finishes. Call it before the conditions change,
// because they tell which.
void close_interval(TrainingJobStatus& status, WallTime now);

// Returns the longest time in which all ranks trained without interruption, up to now. All of
// trainedSeconds if a version of the controller that did not record it wrote the status.
double longest_run_seconds(const TrainingJobStatus& status, WallTime now);

// Returns the Kubernetes nodes on which at least `failures` of the kept failures happened, sorted;
// none if `failures` is 0. Ignores failures that say nothing about the node: deletion, eviction,
// preemption and the like.
std::vector<std::string> nodes_to_avoid(const TrainingJobStatus& status, int64_t failures);

// Returns the Kubernetes nodes that were lost (silent, not ready, deleted) or had a slow rank at
// failures of the last ten minutes, sorted.
std::vector<std::string> lately_lost_nodes(const TrainingJobStatus& status, WallTime now);

// Records the first step known after the newest failure, and where its state was
// (FailureStatus::resumedFrom). Steps from there up to the failure's step are done again, and count
// as lost.
void note_resumed(TrainingJobStatus& status, int64_t step, std::string_view from);

// Records how long it took to do the lost steps again, once training has reached `step`, that of
// the newest failure. Unknown if a further round began before: the time between the two is no work.
// Call it after note_resumed().
void note_recomputed(TrainingJobStatus& status, int64_t step, WallTime now);

}  // namespace lockstep::plan
