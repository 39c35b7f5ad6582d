#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "common/base/result.h"

namespace lockstep {

// Predicts how long a collective takes from two numbers of the network, with Hockney's model (one
// port per direction). A step, in which a message travels from rank to rank, costs the latency. A
// byte costs 1 / bandwidth. A message sent right after another one, to another rank, costs half a
// latency (measured: bench/results/collectives). The operations are those of agent/comm, where the
// algorithms are explained; a test checks this table against the plans executed there. n ranks, S
// bytes per block:
//
//   operation      | algorithm | steps, messages behind     | bytes through the busiest rank
//   all_reduce     | direct    | 1, n-2                     | (n-1) S
//                  | ring      | 2(n-1)                     | 2(n-1)/n S
//                  | halving   | 2 lg p (+2 if n > p)       | 2(p-1)/p S (+2S if n > p)
//                  | tree      | d + d', b                  | S for n = 2, 2S for n < 5, else 3S
//   reduce_scatter | direct    | 1, n-2                     | (n-1) S
//                  | ring      | n-1                        | (n-1) S
//                  | halving   | lg n, n = 2^k              | (n-1) S
//   all_gather     | the same three as reduce_scatter
//   broadcast      | tree      | d', b                      | cS
//                  | ring      | n-1 (a chain)              | S
//   reduce         | tree      | d                          | cS
//                  | ring      | n-1 (a chain)              | S
//   all_to_all     | direct    | 1, n-2                     | (n-1) S
//
// - messages behind: those sent right after another one
// - p: the largest power of two that is at most n
// - d: the depth of a binary tree of n ranks, whose inner nodes have c children (1 for n = 2, else
//   2)
// - d', b: on the path to the leaf that a broadcast reaches last, the number of steps and of second
//   children; d and about d
//
// Pipelined algorithms (tree, chain) pay one piece of at most 64 KiB for each further hop.
//
// On m hosts with k ranks each (n = mk, both above 1), the ranks of a host share its port. For
// direct, halving and tree, k times the bytes pass through the port; for the ring, those of one
// rank. Such a world also has the algorithm by-host (and by-host-halving for all_reduce). Its
// messages within hosts are counted separately: those that messages between hosts do not hide, but
// for reduce_scatter and all_gather all that a rank sends. Bytes within and between hosts move in
// parallel:
//
//   operation      | between hosts              | within
//   all_reduce     | 2(m-1); 2(m-1)/m S         | 2, 2(k-2); 2(k-1)/k S
//     by halving   | as all_reduce by halving   | the same
//                  | of m ranks                 |
//   reduce_scatter | 1, m-2; (m-1)k S           | 2, m(k-1)-2; m(k-1) S
//   all_gather     | the same
//   broadcast      | m-1; S (a chain of hosts)  | k-1; S (a chain on each)
//   reduce         | the same
//
// kPieceBytes is the amount that a pipelined hop waits for, and the least that a rank of agent/comm
// passes on.
constexpr int64_t kPieceBytes = 64 << 10;

enum class CollectiveKind : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kReduce,
  kAllToAll
};
// Returns "all_reduce" and the like.
std::string_view name_of(CollectiveKind kind);

enum class CollectiveAlgorithm : uint8_t {
  kDirect,
  kRing,
  kTree,
  kHalving,
  kByHost,
  kByHostHalving
};
constexpr int kCollectiveAlgorithms = 6;
// Returns "ring" and the like.
std::string_view name_of(CollectiveAlgorithm algorithm);

struct CollectiveCase {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::kRing;
  int64_t ranks = 2;
  double block_bytes = 0;
  int64_t hosts = 0;  // ranks are numbered host by host; 0: flat (a host per rank, or one host)
};

// The critical path of a collective, between ranks, or between hosts whose ranks share a port.
struct CollectiveSteps {
  double steps = 0;
  double behind = 0;  // messages sent right after another one
  double bytes = 0;
};
struct CollectiveCost {
  CollectiveSteps network;
  CollectiveSteps within;  // within hosts; only for by-host algorithms
};

// kInvalid if the operation has no such algorithm for that number of ranks. A single rank costs
// nothing.
Result<CollectiveCost> collective_steps(const CollectiveCase& what);

struct Network {
  double latency_s = 0;
  double bytes_per_s = 1;
  // Number of ranks that can work at the same time. More ranks share the cores and take
  // proportionally longer. 0: no limit.
  int64_t cores = 0;
  // Within a host; used by by-host algorithms.
  double host_latency_s = 0;
  double host_bytes_per_s = 1;
};

Result<double> collective_seconds(const CollectiveCase& what, const Network& network);

// Returns the fastest algorithm; the first one if several are equally fast.
CollectiveAlgorithm fastest_algorithm(const CollectiveCase& what, const Network& network);

// Fits the latency and bandwidth that best explain the measured times: least squares of the
// relative errors, neither value below zero. kInvalid for fewer than two cases with different
// bytes, or for times that no bandwidth explains.
struct TimedCollective {
  CollectiveCase what;
  double seconds = 0;
};
Result<Network> fit_network(std::span<const TimedCollective> measured, int64_t cores);

}  // namespace lockstep
