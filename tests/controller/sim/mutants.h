#pragma once

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

}  // namespace lockstep::sim
