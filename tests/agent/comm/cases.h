#pragma once

#include "agent/comm/communicator.h"
#include "tests/agent/comm/covering.h"

namespace lockstep::test {

// Carries out this rank's part and compares what comes of it with a plain loop; it is a failure of
// the test if the communicator refuses it. Every rank of c.shape.world calls it.
void run_case(const Case& c, Communicator& world);

}  // namespace lockstep::test
