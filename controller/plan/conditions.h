#pragma once

#include <string>

#include "common/api/conditions.h"
#include "common/api/training_job.h"

namespace lockstep::plan {

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

}  // namespace lockstep::plan
