#pragma once

#include <optional>
#include <string>

#include "cli/client/connection.h"
#include "common/api/training_job.h"

namespace lockstep {

struct JobName {
  std::string namespace_;
  std::string name;
};

// What somebody waits for.
struct WaitFor {
  bool deletion = false;
  std::string condition;        // its type, as the job's conditions have it
  std::string status = "True";  // and its status
};
// "Complete", "condition=Ready", "Ready=false", "condition=Ready=False", "delete".
Result<WaitFor> wait_for(const std::string& text);

enum class WaitState { kNotYet, kMet, kNever };
// kNever: the job has ended with another of Complete and Failed.
WaitState wait_state(const WaitFor& what, const TrainingJobStatus& status);

// The job's end for a sentence: "Complete", "Failed: reason: message"; empty: it has not ended.
std::string ending_of(const TrainingJobStatus& status);

// Waits for it, by a watch. 0: met; kExitEnded: never, with a sentence in `why`; kExitTimeout.
// kNotFound where the job is not there in the beginning (for deletion that is 0).
Result<int> wait_for_job(Connection& connection, const JobName& job, const WaitFor& what,
                         std::optional<TimePoint> until, std::string& why);

}  // namespace lockstep
