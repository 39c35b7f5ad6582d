#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/api/training_job.h"
#include "common/base/clock.h"

namespace lockstep {

// The ledger of a job: status.failures, of which status.lastFailure is the newest; status.lost,
// what all of them have cost; status.trainedSeconds, the time in between.

// Entries kept; their numbers go on counting.
inline constexpr size_t kFailuresKept = 10;

// Adds the failure with the next number. Of older ones only the last line or so of the log is kept.
// Until the failure the job trained, or a restart that hadn't recovered yet went on costing time.
// To be called while the conditions still say which.
void record_failure(TrainingJobStatus& status, FailureStatus failure);

// When the newest failure was over, or happened where it isn't over; nullopt where there is none.
// The next one began no earlier, as far as the ledger goes, so that no time counts twice.
std::optional<WallTime> end_of_newest(const TrainingJobStatus& status);

// Milestones of the recovery under way (there is none unless Restarting holds), each noted once:
// the next round has all of its pods; all ranks are connected; all ranks train again. The parts of
// a recovery that is over add up to its recoverySeconds, whatever the wall clock did meanwhile.
void note_pods(TrainingJobStatus& status, WallTime now);
void note_formed(TrainingJobStatus& status, WallTime now);
void note_recovered(TrainingJobStatus& status, WallTime now);

// The job is suspended, or is over: it trained until now, or a recovery will not be seen to its
// end. To be called while the conditions still say which.
void note_stopped(TrainingJobStatus& status, WallTime now);

// Kubernetes nodes on which so many of the failures kept happened, without those that say nothing
// of the node: deletion, eviction, preemption and the like. Sorted; none where `failures` is 0.
std::vector<std::string> nodes_to_avoid(const TrainingJobStatus& status, int64_t failures);

// The first step that is known of after the newest failure: those beyond it are done again.
void note_resumed(TrainingJobStatus& status, int64_t step);

}  // namespace lockstep
