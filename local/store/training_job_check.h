#pragma once

#include <optional>

#include "common/base/json.h"
#include "local/store/status_error.h"
#include "local/store/write.h"

namespace lockstep::local {

// Returns a 422 with a cause for each problem that validate() finds in the TrainingJob: its schema
// alone cannot express them, and other servers refuse most of them by the definition's CEL rules.
// The controller alone checks podTemplate. `old` is null for a new object. Problems that `old` has
// too are forgiven, so a stored job stays manageable, as on a server with ratcheting. Writes of the
// status are never refused. nullopt for other kinds.
std::optional<ApiResponse> check_training_job(const Write& write, const Json* old,
                                              const Json& object);

}  // namespace lockstep::local
