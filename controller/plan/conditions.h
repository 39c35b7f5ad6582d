#pragma once

#include <string>
#include <string_view>

#include "common/api/training_job.h"

namespace lockstep {

// Names and meanings: docs/design.md, "The contract". Conventions: metav1.Condition and
// Kubernetes' API conventions ("Typical status properties").
inline constexpr char kValid[] = "Valid";
inline constexpr char kPodsScheduled[] = "PodsScheduled";
inline constexpr char kReady[] = "Ready";
inline constexpr char kRunning[] = "Running";
inline constexpr char kRestarting[] = "Restarting";
inline constexpr char kSuspended[] = "Suspended";
inline constexpr char kComplete[] = "Complete";
inline constexpr char kFailed[] = "Failed";
inline constexpr char kStuck[] = "Stuck";  // ranks wait for one that does not come (stuck.h)
// The job asks for bf16 and computes in fp32 (precision.h).
inline constexpr char kPrecisionReduced[] = "PrecisionReduced";

const Condition* find_condition(const TrainingJobStatus& status, std::string_view type);
bool is_true(const TrainingJobStatus& status, std::string_view type);
// Complete or Failed: nothing takes it back.
bool is_finished(const TrainingJobStatus& status);

// Less than the CRD takes: a longer one would have every later write of the status refused.
inline constexpr size_t kMessageBytesMax = 4096;

struct ConditionUpdate {
  std::string type;
  bool value = false;
  std::string reason;   // CamelCase
  std::string message;  // only its first kMessageBytesMax are kept
  std::string time;     // RFC 3339; becomes lastTransitionTime only if the status flips
  int64_t generation = 0;
};
// Adds it, or brings it up to date in place. Returns whether the status flipped (or is new).
bool set_condition(TrainingJobStatus& status, ConditionUpdate update);

}  // namespace lockstep
