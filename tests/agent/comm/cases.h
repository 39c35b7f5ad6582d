#pragma once

#include <cstddef>
#include <vector>

#include "agent/comm/communicator.h"
#include "tests/agent/comm/covering.h"

namespace lockstep::test {

// The memory of one rank of c.shape, with values drawn from the case's seed: input and output, or
// one buffer for both, each followed by a guard.
class Part {
 public:
  Part(const Case& c, int rank);
  // Returns calls on this memory, to be issued together.
  std::vector<comm::Call> calls();
  // kCorrupt, with the reason, if the results differ from a plain loop's or anything else was
  // written.
  Status check() const;

 private:
  Case case_;
  int rank_;
  bool is_together_ = false;
  std::vector<std::byte> input_;
  std::vector<std::byte> output_;
};

// Carries out this rank's part and compares the result with a plain loop. Fails the test if the
// communicator refuses the case. Every rank of c.shape.world calls it.
void run_case(const Case& c, comm::Communicator& world);

}  // namespace lockstep::test
