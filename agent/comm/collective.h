#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

// The ways to carry out an operation; collectives.h has their table of steps and bytes, and says
// which operation has which. kAuto chooses by operation, size, number of ranks and the hosts that
// they are on alone.
enum class Algorithm : uint8_t {
  kAuto,
  kDirect,
  kRing,
  kTree,
  kOneRoot,
  kHalving,
  kByHost,
  kByHostHalving
};
constexpr int kAlgorithms = 8;
// "ring", "by-host"
const char* name_of(Algorithm algorithm);

enum class Collective : uint8_t {
  kForm = 1,  // the first barrier of a world; not for callers
  kBarrier,
  kBroadcast,
  kAllReduce,
  kAllGather,
  kReduce,
  kReduceScatter,
  kScatter,
  kGather,
  kAllToAll,
  kSend,
  kReceive,
};
constexpr int kCollectives = 12;

// What an operation is, whoever carries it out.
struct CollectiveTraits {
  const char* name = "an unknown operation";
  bool reduces = false;     // has a reduction
  bool has_root = false;    // Call::rank is the root
  bool is_message = false;  // from one rank to another, which is Call::rank; else of all ranks
  bool has_blocks = false;  // one rank at least gives or takes a block of each rank
};
// Of any value that a byte can have.
const CollectiveTraits& traits(Collective kind);
// "all_reduce"
inline const char* name_of(Collective kind) {
  return traits(kind).name;
}

}  // namespace lockstep
