#pragma once

#include <string>

#include "tests/controller/search/moves.h"
#include "tests/controller/search/world.h"

namespace lockstep::search {

// The server, the kubelets, the agents and their workers: what becomes possible, and what it does.

// Serves a request at the server or at the agent, and returns the answer.
// `is_stray`: the controller that sent it is dead.
Answer serve(World& world, const Request& request, bool is_stray);
// Returns whether the request can no longer have an effect, nor break a property.
bool is_void(const World& world, const Request& request);
Answer timeout();
Answer refusal();  // exceeded quota
void touch_job(World& world);

bool is_over(const World& world);  // the job is Complete or Failed
bool can_start(const World& world, const plan::PodView& pod);
bool has_lost_a_peer(const World& world, const Agent& agent);
// Returns whether the agent's round can begin to train. True for its first agent alone, since the
// move is that of the whole round.
bool can_train(const World& world, const Agent& agent);
bool trains(const World& world, const Agent& agent);
bool can_be_killed(const World& world, const Agent& agent);
// Returns the agent's current report.
AgentState report_of(const World& world, const std::string& uid);

void apply_to_job(World& world, MoveKind kind);
void apply_to_pod(World& world, const Move& move);
void apply_to_agent(World& world, const Move& move);

}  // namespace lockstep::search
