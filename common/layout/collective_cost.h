#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "common/base/result.h"

namespace lockstep {

// How long a collective takes, by two numbers of the network: a step, in which a message travels
// from rank to rank, costs the latency, and a byte costs 1 / bandwidth (Hockney's model, one port
// for each way). The operations are those of agent/comm, where their algorithms are explained; a
// test holds this table to the plans that are carried out there. n ranks, S bytes of a block:
//
//   operation      | way      | steps                      | bytes through the busiest rank
//   all_reduce     | direct   | n-1                        | (n-1) S
//                  | ring     | 2(n-1)                     | 2(n-1)/n S
//                  | halving  | 2 lg p (+2 if n > p)       | 2(p-1)/p S (+2S if n > p)
//                  | tree     | 2dc                        | S for n = 2, 2S for n < 5, else 3S
//   reduce_scatter | direct   | n-1                        | (n-1) S
//                  | ring     | n-1                        | (n-1) S
//                  | halving  | lg n, n = 2^k              | (n-1) S
//   all_gather     | the same three as reduce_scatter
//   broadcast      | tree     | dc                         | cS
//                  | ring     | n-1 (a chain)              | S
//   all_to_all     | direct   | n-1                        | (n-1) S
//
// p: the largest power of two that is not above n; d: the depth of a binary tree of n, whose nodes
// have c children (1 for n = 2, else 2), one after the other. What is pipelined (tree, chain) pays
// a piece of at most 64 KiB for each further hop.
enum class CollectiveKind : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kAllToAll
};
constexpr int kCollectiveKinds = 5;
// "all_reduce"
std::string_view name_of(CollectiveKind kind);

enum class CollectiveWay : uint8_t { kDirect, kRing, kTree, kHalving };
constexpr int kCollectiveWays = 4;
// "ring"
std::string_view name_of(CollectiveWay way);

struct CollectiveCase {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  CollectiveWay way = CollectiveWay::kRing;
  int64_t ranks = 2;
  double block_bytes = 0;
};

struct CollectiveSteps {
  double steps = 0;
  double bytes = 0;
};

// kInvalid where the operation has no such way for so many ranks. A single rank costs nothing.
Result<CollectiveSteps> collective_steps(const CollectiveCase& what);

struct Network {
  double latency_s = 0;
  double bytes_per_s = 1;
  // So many ranks work at once: more share the cores, and take as many times as long. 0: any.
  int64_t cores = 0;
};

Result<double> collective_seconds(const CollectiveCase& what, const Network& network);

// The way that takes the least time, the first of several.
CollectiveWay fastest_way(const CollectiveCase& what, const Network& network);

// The latency and bandwidth that explain the measured times best: least squares of the relative
// errors, neither below zero. kInvalid for fewer than two cases of different bytes, or for times
// that no bandwidth explains.
struct TimedCollective {
  CollectiveCase what;
  double seconds = 0;
};
Result<Network> fit_network(std::span<const TimedCollective> measured, int64_t cores);

}  // namespace lockstep
