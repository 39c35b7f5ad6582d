#pragma once

#include <cstddef>
#include <vector>

#include "agent/comm/communicator.h"
#include "tests/agent/comm/covering.h"

namespace lockstep::test {

// The memory of one rank of c.shape, drawn by the case's seed: input and output, or both in one,
// and a guard behind each.
class Part {
 public:
  Part(const Case& c, int rank);
  // To be issued together, on this memory.
  std::vector<Call> calls();
  // kCorrupt, in words, where the results are not a plain loop's or anything else was touched.
  Status check() const;

 private:
  Case case_;
  int rank_;
  bool is_together_ = false;
  std::vector<std::byte> input_;
  std::vector<std::byte> output_;
};

// Carries out this rank's part and compares what comes of it with a plain loop; it is a failure of
// the test if the communicator refuses it. Every rank of c.shape.world calls it.
void run_case(const Case& c, Communicator& world);

}  // namespace lockstep::test
