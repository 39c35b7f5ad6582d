#pragma once

#include <string_view>

#include "common/api/training_job.h"

namespace lockstep {

// Types of a TrainingJob's conditions. Meanings: docs/trainingjob.md. Conventions: metav1.Condition
// and Kubernetes' API conventions ("Typical status properties").
inline constexpr char kValid[] = "Valid";
inline constexpr char kPodsScheduled[] = "PodsScheduled";
inline constexpr char kReady[] = "Ready";
inline constexpr char kRunning[] = "Running";
inline constexpr char kRestarting[] = "Restarting";
inline constexpr char kSuspended[] = "Suspended";
inline constexpr char kComplete[] = "Complete";
inline constexpr char kFailed[] = "Failed";
inline constexpr char kStuck[] = "Stuck";  // ranks wait for one that does not come
// A rank computes for longer than its peers, which wait for it (controller/plan/straggler.h).
inline constexpr char kStraggling[] = "Straggling";
// A pod is being stopped, and the ranks of the round save a checkpoint.
inline constexpr char kDraining[] = "Draining";
// The job asks for bf16 and computes in fp32 (controller/plan/precision.h).
inline constexpr char kPrecisionReduced[] = "PrecisionReduced";
// The newest checkpoint could not be saved, or a corrupt one was set aside
// (controller/plan/storage.h).
inline constexpr char kCheckpointFailing[] = "CheckpointFailing";
inline constexpr char kCheckpointSetAside[] = "CheckpointSetAside";
// Training went on without batches, because of a loss (controller/plan/storage.h).
inline constexpr char kBatchSkipped[] = "BatchSkipped";
// The job's NetworkPolicy is not as the job asks (controller/plan/network_policy.h).
inline constexpr char kNetworkPolicyFailing[] = "NetworkPolicyFailing";

// Returns the condition of this type, or nullptr.
const Condition* find_condition(const TrainingJobStatus& status, std::string_view type);
// Return whether the condition exists with this status.
bool is_true(const TrainingJobStatus& status, std::string_view type);
bool is_false(const TrainingJobStatus& status, std::string_view type);
// Returns whether the job is Complete or Failed, which is final.
bool is_finished(const TrainingJobStatus& status);

}  // namespace lockstep
