#pragma once

#include "common/base/result.h"

namespace lockstep::train {

// Returns the exit code of a worker that this error ends (common/api/worker_config.h).
int exit_code_of(const Error& error);

}  // namespace lockstep::train
