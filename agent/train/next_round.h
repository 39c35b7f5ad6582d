#pragma once

#include <optional>
#include <string>

#include "agent/train/progress_reporter.h"
#include "common/api/worker_config.h"
#include "common/base/result.h"

namespace lockstep::train {

Result<WorkerConfig> read_worker_config(const std::string& path);

// Returns whether the process, whose rank has left its round with this exit code, may serve another
// round. It may if nothing was wrong with the rank itself: another one was lost or hung. It also
// has to have done a step in this round, so that a process whose own damage makes peers fail is not
// kept twice. A process that was told to stop, or that uses a GPU, ends.
bool may_stay(const WorkerConfig& config, int exit_code, const ProgressReporter& progress);

// Tells the agent that the rank has left its round, and waits for the next one, whose configuration
// it returns; nothing if the process is to end with this exit code. Everything of the earlier round
// must be gone. An error is about the configuration: kInvalid if it is wrong.
Result<std::optional<WorkerConfig>> await_next_round(const WorkerConfig& config, int exit_code);

}  // namespace lockstep::train
