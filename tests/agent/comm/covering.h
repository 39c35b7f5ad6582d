#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "agent/comm/communicator.h"
#include "tests/agent/comm/small_frames.h"
#include "tests/agent/comm/worlds.h"

namespace lockstep::test {

// A group: the whole world, or some of its ranks in an order of their own.
struct Shape {
  int world = 1;
  std::vector<int> ranks;  // empty: all
  int size() const { return ranks.empty() ? world : static_cast<int>(ranks.size()); }
};

// An operation and the factors to vary. Factors without meaning for the operation (the reduction of
// a broadcast, the root of an all_reduce) keep these defaults.
struct Case {
  comm::Collective kind = comm::Collective::kBarrier;
  comm::ReduceOp op = comm::ReduceOp::kSum;
  comm::DataType type = comm::DataType::kU8;
  Shape shape;
  int64_t count = 0;
  comm::Algorithm algorithm = comm::Algorithm::kAuto;
  Transport transport = Transport::kThreads;
  bool in_place = false;
  int root = 0;
  bool runs_concurrent_group = false;  // the same case runs concurrently in an overlapping group
  Limits limits;                       // the world's
  uint64_t seed = 0;

  size_t blocks(size_t n) const {
    return n * static_cast<size_t>(count) * comm::data_type_bytes(type);
  }
};

std::string describe(const Case& c);

// Where the cases run.
struct TestSetup {
  std::vector<Transport> transports;  // each case takes one of them
  // The ranks are on this many hosts, equally many on each, one host after the other; 0: as the
  // transport places them.
  int hosts = 0;
  size_t block_bytes_max = std::numeric_limits<size_t>::max();
  bool has_algorithms = true;  // otherwise only kAuto
  bool has_concurrent_groups = true;
  bool has_limits = true;  // small frames, and whether moves are lent
};

// Whether a group of ranks on these nodes has this algorithm for the operation. Deliberately
// written a second time, independently of the code under test, so that no algorithm goes missing
// unnoticed.
bool has_algorithm(comm::Collective kind, comm::Algorithm algorithm,
                   std::span<const int> node_of_rank);
// Returns the node of each rank of the group.
std::vector<int> nodes_of(const Shape& shape, int hosts);
// Sizes and rank orders of the groups in the cases.
std::span<const Shape> shapes();

// Returns cases that can run on the setup, such that each value of each factor meets each value of
// each other factor, wherever such a case exists.
std::vector<Case> covering_array(const TestSetup& setup, uint64_t seed);

// Every possible case on a setup, with each value of each factor, numbered.
class Product {
 public:
  explicit Product(const TestSetup& setup);
  uint64_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  // index < size().
  Case at(uint64_t index, uint64_t seed) const;

 private:
  TestSetup setup_;
  std::vector<std::vector<std::vector<int>>> choices_;  // values of each factor that combine freely
  std::vector<uint64_t> ends_;  // by entry of choices_: the first case after it
};

// Describes the pairs of values that can meet on the setup but do so in none of the cases.
std::vector<std::string> missing_pairs(const TestSetup& setup, std::span<const Case> cases);

}  // namespace lockstep::test
