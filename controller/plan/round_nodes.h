#pragma once

#include <cstdint>
#include <vector>

#include "controller/plan/pass.h"

namespace lockstep::plan {

// Returns the nodes of the current round, as status describes it, or those that are gathered for
// the next one; ascending. A controller that starts reads them from status alone.
std::vector<int64_t> nodes_of_round(const Pass& pass);

// Returns the nodes that the next round is to have: those of pass.choose(), and those of the
// current round that have not got its assignment yet and run an older one. A round that leaves out
// no such node and shares one with its predecessor can train only when no older round is whole. It
// may leave out nodes that run its predecessor, which that shared node ends.
std::vector<int64_t> wanted_nodes(const Pass& pass);

// Returns whether the pod exists and runs.
bool runs(const PodView* pod);
// Returns whether a round can begin with these nodes: their pods run, and it is known that no other
// node runs an older round.
bool can_begin(const Pass& pass, const std::vector<int64_t>& nodes);

// Requeues the plan for when other nodes, whose agents have not answered, will have been silent for
// so long that a round can begin without them. Silence causes no event.
void requeue_for_silence(Pass& pass, const std::vector<int64_t>& nodes);

// Gives each of these nodes a new pod: the next incarnation, which is not seen yet.
void replace_lost(Pass& pass, const std::vector<int64_t>& lost);

std::vector<int64_t> all_members(const Pass& pass);
// Both lists are ascending.
bool is_subset(const std::vector<int64_t>& nodes, const std::vector<int64_t>& of);

}  // namespace lockstep::plan
