#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "controller/plan/pass.h"
#include "tests/controller/sim/simulation.h"

namespace lockstep::sim {

// A RoundChoice that leaves out nodes. A third of the jobs, by UID, has all of them, a third leaves
// out one, and a third has another subset every 20 seconds. A round has a node of the one that it
// follows, and follows only a round that all its nodes know; after a failure it has one of each
// world that trains. Else a world that hears of no other round would train on.
std::vector<int64_t> choose_some(const plan::Pass& pass);

// Returns a controller with these policies and this choice.
loop::PlanFunction plan_with(std::vector<plan::Policy> policies,
                             plan::RoundChoice choose = choose_some);
// The same with all policies. All agents know such rounds.
Mutation leaving_out_nodes(plan::RoundChoice choose = choose_some);

}  // namespace lockstep::sim
