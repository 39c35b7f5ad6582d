#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "common/base/result.h"

namespace lockstep {

// How long a collective takes, by two numbers of the network: a step, in which a message travels
// from rank to rank, costs the latency, and a byte costs 1 / bandwidth (Hockney's model, one port
// for each way); a message that leaves right behind another one, to another rank, costs half a
// latency (measured: bench/results/collectives). The operations are those of agent/comm, where
// their algorithms are explained; a test holds this table to the plans that are carried out there.
// n ranks, S bytes of a block:
//
//   operation      | way      | steps, messages behind     | bytes through the busiest rank
//   all_reduce     | direct   | 1, n-2                     | (n-1) S
//                  | ring     | 2(n-1)                     | 2(n-1)/n S
//                  | halving  | 2 lg p (+2 if n > p)       | 2(p-1)/p S (+2S if n > p)
//                  | tree     | d + d', b                  | S for n = 2, 2S for n < 5, else 3S
//   reduce_scatter | direct   | 1, n-2                     | (n-1) S
//                  | ring     | n-1                        | (n-1) S
//                  | halving  | lg n, n = 2^k              | (n-1) S
//   all_gather     | the same three as reduce_scatter
//   broadcast      | tree     | d', b                      | cS
//                  | ring     | n-1 (a chain)              | S
//   reduce         | tree     | d                          | cS
//                  | ring     | n-1 (a chain)              | S
//   all_to_all     | direct   | 1, n-2                     | (n-1) S
//
// p: the largest power of two that is not above n; d: the depth of a binary tree of n, whose nodes
// have c children (1 for n = 2, else 2); d' and b: steps to the leaf that a broadcast reaches last,
// and how often on the way it goes to a second child, d and about d. What is pipelined (tree,
// chain) pays a piece of at most 64 KiB for each further hop.
//
// On m hosts of k ranks each (n = mk, both above 1) the ranks of a host share its port: of direct,
// halving and tree k times the bytes go through it, of the ring those of one rank. There is
// another way, by-host (of an all_reduce also by-host-halving), whose messages within hosts are
// counted apart, those that the messages between hosts don't hide, and of reduce_scatter and
// all_gather all that a rank sends; bytes go within and between hosts side by side:
//
//   operation      | between hosts              | within
//   all_reduce     | 2(m-1); 2(m-1)/m S         | 2, 2(k-2); 2(k-1)/k S
//     by halving   | as all_reduce by halving   | the same
//                  | of m ranks                 |
//   reduce_scatter | 1, m-2; (m-1)k S           | 2, m(k-1)-2; m(k-1) S
//   all_gather     | the same
//   broadcast      | m-1; S (a chain of hosts)  | k-1; S (a chain on each)
//   reduce         | the same
// What a pipelined hop waits for, and the least that a rank of agent/comm passes on.
constexpr int64_t kPieceBytes = 64 << 10;

enum class CollectiveKind : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kReduce,
  kAllToAll
};
constexpr int kCollectiveKinds = 6;
// "all_reduce"
std::string_view name_of(CollectiveKind kind);

enum class CollectiveWay : uint8_t { kDirect, kRing, kTree, kHalving, kByHost, kByHostHalving };
constexpr int kCollectiveWays = 6;
// "ring"
std::string_view name_of(CollectiveWay way);

struct CollectiveCase {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  CollectiveWay way = CollectiveWay::kRing;
  int64_t ranks = 2;
  double block_bytes = 0;
  int64_t hosts = 0;  // so many, numbered one host after the other; 0: one for each rank, or one
};

// What has to follow one another, between ranks or, where the ranks of a host share a port, hosts.
struct CollectiveSteps {
  double steps = 0;
  double behind = 0;  // messages that leave right behind another one
  double bytes = 0;
};
struct CollectiveCost {
  CollectiveSteps network;
  CollectiveSteps within;  // hosts; of by-host
};

// kInvalid where the operation has no such way for so many ranks. A single rank costs nothing.
Result<CollectiveCost> collective_steps(const CollectiveCase& what);

struct Network {
  double latency_s = 0;
  double bytes_per_s = 1;
  // So many ranks work at once: more share the cores, and take as many times as long. 0: any.
  int64_t cores = 0;
  // Within a host, of by-host.
  double host_latency_s = 0;
  double host_bytes_per_s = 1;
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
