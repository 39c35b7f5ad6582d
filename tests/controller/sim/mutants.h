#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/controller/sim/simulation.h"

namespace lockstep::sim {

// A bug planted through the interfaces of the real part: a wrong policy or a wrong part of the
// loop. The simulation has to find every one of them.
struct Mutant {
  std::string name;
  std::string found_by;  // the prefix of the expected violation: the invariant that it breaks
  Mutation mutation;
};

std::vector<Mutant> all_mutants();

// Returns a controller that is right but for what its agents are sent, or what they report.
Mutation with_agents(std::function<void(Assignment&)> put,
                     std::function<void(AgentState&)> state = {});
// Adds mistakes in the mapping between nodes, places and ranks, in rounds that leave out nodes
// (mutants_of_places.cc).
void add_places(std::vector<Mutant>& mutants);
// Adds mistakes about servers with copies (mutants_of_servers.cc).
void add_servers(std::vector<Mutant>& mutants);
// Adds mistakes about slow ranks and bad losses (mutants_of_training.cc).
void add_training(std::vector<Mutant>& mutants);

}  // namespace lockstep::sim
