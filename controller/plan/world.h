#pragma once

#include <string>

#include "common/api/agent_messages.h"
#include "common/api/world_assignment.h"
#include "common/base/result.h"
#include "controller/plan/pass.h"

namespace lockstep::plan {

// Returns the world of `round` from its members' pods as they are seen now. kUnavailable while a
// pod or its address is missing; kInvalid if the spec does not fit (validation reports that
// earlier).
Result<WorldAssignment> world_of(const Pass& pass, int64_t round);
// Returns what the current round asks of agents in addition to its world and training.
WorkerWishes wishes_of_round(const Pass& pass);

// Returns the oldest version that tells of this world of the round, and that of an order to exit,
// which needs less: it tells of no rules about losses.
int64_t protocol_of_world(const Pass& pass, const WorldAssignment& world);
int64_t protocol_of_exit(const Pass& pass, const WorldAssignment& world);
// Returns whether the agent can be sent what needs that version: it has answered, in this version
// or a newer one. Agents that have not answered yet can be sent an ordinary world.
bool may_be_sent(const AgentView* agent, int64_t protocol);

// Returns whether all agents of the round carry out its assignment. Later changes of the spec are
// for the next round.
bool all_have_assignment(const Pass& pass);

// Returns what all agents are sent, without the node index of each. `action`: Run or Exit.
Assignment assignment_of(const Pass& pass, WorldAssignment world, std::string action);

AgentTarget target_of(const PodView& pod);

// Returns a number above the current round and above every round that an agent of the job reports.
// Agents are ahead of status if it was set back, as from a backup.
int64_t next_round(const Pass& pass);

// Records `round` as the next one, with the assignment that follows from the pods seen now. It has
// wanted_nodes() if it can begin with them, else pass.round_nodes. If a pod that it needs is
// missing, the round stays unformed, with the old number, until all are there.
void begin_round(Pass& pass, int64_t round);

}  // namespace lockstep::plan
