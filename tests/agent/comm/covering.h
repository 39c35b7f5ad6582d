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

// A group: the whole world, or some ranks of it in an order of their own.
struct Shape {
  int world = 1;
  std::vector<int> ranks;  // empty: all
  int size() const { return ranks.empty() ? world : static_cast<int>(ranks.size()); }
};

// An operation and what is to be varied about it. What means nothing to the operation (the
// reduction of a broadcast, the root of an all_reduce) is as it is here.
struct Case {
  Collective kind = Collective::kBarrier;
  ReduceOp op = ReduceOp::kSum;
  DataType type = DataType::kU8;
  Shape shape;
  int64_t count = 0;
  Algorithm algorithm = Algorithm::kAuto;
  Transport transport = Transport::kThreads;
  bool in_place = false;
  int root = 0;
  bool beside = false;  // the same runs in an overlapping group at once
  Limits limits;        // the world's
  uint64_t seed = 0;

  size_t blocks(size_t n) const { return n * static_cast<size_t>(count) * data_type_bytes(type); }
};

std::string describe(const Case& c);

// What the cases run on.
struct Ground {
  std::vector<Transport> transports;  // each case takes one of them
  // The ranks are on so many hosts, equally many on each, one host after the other; 0: as the
  // transport has them.
  int hosts = 0;
  size_t block_bytes_max = std::numeric_limits<size_t>::max();
  bool has_algorithms = true;  // else kAuto alone
  bool has_groups_beside = true;
  bool has_limits = true;  // small frames, and whether anything is lent
};

// Whether a group of ranks on these nodes has this way to carry out the operation. Written down
// here a second time, beside the one that is tested, so that nothing goes missing there unnoticed.
bool has_way(Collective kind, Algorithm algorithm, std::span<const int> node_of_rank);
// Of the ranks of the group.
std::vector<int> nodes_of(const Shape& shape, int hosts);
// Sizes and orders of groups that there are cases of.
std::span<const Shape> shapes();

// Cases that can be carried out on the ground, every one, in which each value of each factor meets
// each value of each other one with which there can be a case.
std::vector<Case> covering_array(const Ground& ground, uint64_t seed);

// Every case that there can be on a ground, with each value of each factor, numbered.
class Product {
 public:
  explicit Product(const Ground& ground);
  uint64_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  // index < size().
  Case at(uint64_t index, uint64_t seed) const;

 private:
  Ground ground_;
  std::vector<std::vector<std::vector<int>>> choices_;  // values of each factor, any of each
  std::vector<uint64_t> ends_;                          // of choices_: the first case behind
};

// The pairs of values that can meet on the ground and do in none of the cases, in words.
std::vector<std::string> missing_pairs(const Ground& ground, std::span<const Case> cases);

}  // namespace lockstep::test
