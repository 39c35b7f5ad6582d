#pragma once

#include <cstdint>
#include <vector>

#include "agent/comm/communicator.h"
#include "tests/agent/comm/worlds.h"

namespace lockstep::test {

// A group: the whole world, or some ranks of it in an order of their own.
struct Shape {
  int world = 1;
  std::vector<int> ranks;  // empty: all
  int size() const { return ranks.empty() ? world : static_cast<int>(ranks.size()); }
};

struct Case {
  Collective kind;
  ReduceOp op;
  DataType type;
  Shape shape;
  int64_t count = 0;
  Algorithm algorithm;
  Transport transport;
  bool in_place = false;
  int root = 0;
  uint64_t seed = 0;

  size_t blocks(size_t n) const { return n * static_cast<size_t>(count) * data_type_bytes(type); }
};

// Cases in which each value of each factor meets each value of each other one.
std::vector<Case> covering_array(uint64_t seed);

// Carries out this rank's part and compares what comes of it with a plain loop; asserts that an
// algorithm which the operation does not have is refused. Every rank of c.shape.world calls it.
void run_case(const Case& c, Communicator& world);

}  // namespace lockstep::test
