#pragma once

#include <string>
#include <vector>

#include "tests/controller/sim/simulation.h"

namespace lockstep::sim {

// Wrong policies and wrong parts of the loop, planted through the interfaces that the right ones
// have. The simulation has to find every one of them.
struct Mutant {
  std::string name;
  std::string found_by;  // the invariant that it breaks: what the violation begins with
  Mutation mutation;
};

std::vector<Mutant> all_mutants();

}  // namespace lockstep::sim
