#pragma once

#include <optional>
#include <string>

#include "cli/client/connection.h"
#include "common/api/training_job.h"

namespace lockstep::cli {

struct JobName {
  std::string namespace_;
  std::string name;
};

// The state of a job that a command waits for.
struct WaitCondition {
  bool deletion = false;
  std::string type;             // of a condition of the job
  std::string status = "True";  // of that condition
};
// Parses "Complete", "condition=Ready", "Ready=false", "condition=Ready=False", "delete".
Result<WaitCondition> parse_wait_condition(const std::string& text);

enum class WaitState { kNotYet, kMet, kNever };
// kNever: the job has ended without the condition.
WaitState wait_state(const WaitCondition& what, const TrainingJobStatus& status);

// Describes how the job ended: "Complete", "Failed: reason: message"; empty if it has not ended.
std::string ending_of(const TrainingJobStatus& status);

// Watches the job until the state is reached. Returns 0 if so; kExitEnded, with a sentence in
// `why`, if it can't be reached any more; kExitTimeout on timeout. kNotFound if the job does not
// exist at first (0 when waiting for its deletion).
Result<int> wait_for_job(Connection& connection, const JobName& job, const WaitCondition& what,
                         std::optional<TimePoint> until, std::string& why);

}  // namespace lockstep::cli
