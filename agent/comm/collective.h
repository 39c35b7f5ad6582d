#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::comm {

// Algorithms for an operation. collectives.h lists their steps and bytes, and which operation has
// which. kAuto chooses by operation, size, number of ranks and their hosts alone.
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

// Properties of an operation, the same for every backend.
struct CollectiveTraits {
  const char* name = "an unknown operation";
  bool reduces = false;     // has a reduction
  bool has_root = false;    // Call::rank is the root
  bool is_message = false;  // from one rank to another (Call::rank); else of all ranks
  bool has_blocks = false;  // at least one rank gives or takes a block per rank
};
// Defined for every value of the byte.
const CollectiveTraits& traits(Collective kind);
// "all_reduce"
inline const char* name_of(Collective kind) {
  return traits(kind).name;
}

}  // namespace lockstep::comm
