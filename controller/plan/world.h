#pragma once

#include <span>

#include "common/api/agent_messages.h"
#include "common/api/world_assignment.h"
#include "common/base/result.h"
#include "controller/plan/pass.h"

namespace lockstep {

// All of these pods are there and run.
bool all_run(std::span<const PodView* const> pods);

// The world of `round` from the pods of those in it, as they are seen. kUnavailable while a pod or
// its address is missing; kInvalid where the spec does not fit (validation says so before).
Result<WorldAssignment> world_of(const Pass& pass, int64_t round);

// What the agents are told, but for each one's node index. `action`: Run or Exit.
Assignment assignment_of(const Pass& pass, WorldAssignment world, std::string action);

AgentTarget target_of(const PodView& pod);

// Above the present one and every one that an agent of the job speaks of: where status was set
// back, as from a backup, agents are ahead of it.
int64_t next_round(const Pass& pass);

// Records `round` as the next one, with the assignment that follows from the pods seen now, those
// that are to join included once all of them run; where the others are not all there it stays
// unformed, with the old number, until they are.
void begin_round(Pass& pass, int64_t round);

}  // namespace lockstep
