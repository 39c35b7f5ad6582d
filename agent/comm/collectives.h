#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "agent/comm/communicator.h"
#include "agent/comm/host_map.h"
#include "agent/comm/move_plan.h"
#include "common/base/result.h"

namespace lockstep {

// clang-format off
// The algorithms, for n ranks and S bytes (of the block, that is `count` elements): what a rank
// sends at most, and how many times in a row something has to travel from rank to rank (hops).
// Which one kAuto takes depends on operation, n, S and the hosts alone. Two levels: the group is on
// several hosts, of which one at least has several ranks.
//
//   operation      | algorithm | bytes a rank sends at most       | hops
//   all_reduce     | direct    | (n-1)S                           | 1
//                  | by-host   | see below                        | 2m, pipelined
//                  | ~-halving | see below                        | 2 lg m + 2 (+2)
//                  | halving   | 2(n-1)/n S; n no power of 2: + S | 2 lg n (+2)
//                  | ring      | 2(n-1)/n S                       | 2(n-1), pipelined
//                  | tree      | 3S (the root 2S)                 | 2 lg n, pipelined
//                  | one-root  | S, the root (n-1)S               | 2
//   reduce         | tree      | S                                | lg n, pipelined
//                  | by-host   | S                                | m-1 + k-1, pipelined
//                  | ring      | S                                | n-1, pipelined (a chain)
//                  | one-root  | S                                | 1
//   broadcast      | tree      | 2S                               | lg n, pipelined
//                  | by-host   | 2S                               | m-1 + k-1, pipelined
//                  | ring      | S                                | n-1, pipelined (a chain)
//                  | one-root  | the root (n-1)S                  | 1
//   all_gather     | direct    | (n-1)S                           | 1
//                  | by-host   | (n-1)S                           | 2
//                  | halving   | (n-1)S; n = 2^k                  | lg n
//                  | ring      | (n-1)S                           | n-1, pipelined
//   reduce_scatter | direct    | (n-1)S                           | 1
//                  | by-host   | (n-1)S                           | 2
//                  | halving   | (n-1)S; n = 2^k                  | lg n
//                  | ring      | (n-1)S                           | n-1, pipelined
//   scatter        | one-root  | the root (n-1)S                  | 1
//   gather         | one-root  | S                                | 1
//   all_to_all     | direct    | (n-1)S                           | 1
//   barrier        | direct    | headers alone                    | 1
//                  | halving   | headers alone (by distance)      | lg n, rounded up
//   send           | direct    | S                                | 1
//
// What leaves a host, of m hosts with k ranks each (n = mk), at most; the others for ranks that are
// numbered host by host, and more where they are not:
//   operation      | by-host     | ring        | direct
//   all_reduce     | 2(m-1)/m S  | 2(n-1)/n S  | k(n-k) S
//   ~, ~-halving   | 2(m-1)/m S, m no power of 2: 2(p-1)/p S + S, p the one below
//   reduce         | S           | S           |
//   broadcast      | S           | S           |
//   all_gather     | (n-k) S     | (n-1) S     | k(n-k) S
//   reduce_scatter | (n-k) S     | (n-1) S     | k(n-k) S
// By-host, a rank sends 2(k-1)/k S + 2(m-1)/n S in an all_reduce: the second part leaves the host.
// by-host-halving, of all_reduce alone, has recursive halving and doubling between the hosts, where
// by-host has a ring: fewer steps where there are many hosts.
// Where hosts have different numbers of ranks, the ones with fewer do several ranks' part between
// hosts; what leaves a host stays the same, but for all_gather and reduce_scatter, where it is
// (m-1) k S and (n-k) S for its own k.
// clang-format on
//
// kAuto takes, of all ways but one-root, the first in its order that by the model of
// common/layout/collective_cost.h takes at most 8/7 of the best one's time, where a step costs as
// long as kStepBytes... take to travel. The order is direct, halving, tree, by-host, ring,
// by-host-halving for what is small (kSmallBytesMax, kDirectBytesMax), else by-host, ring, halving,
// by-host-halving, tree, direct: the ring gives to its neighbour what others send across the whole
// network, of which the model knows nothing. Up to kDirectRanksMax ranks what is small goes direct
// without asking (measured on a busy machine: 1.5 to 2.7 times as fast as halving, 8 B on 4 and 8
// ranks), or, where there is no direct way, with one level and up to kTreeBytesMax by the tree. A
// barrier of so many ranks is direct, of more by halving.
//
// An algorithm that an operation does not have is refused (kInvalid).
//
// The orders of sums, of x_0 ... x_n-1, the same for every rank and run:
//   direct          all_reduce ((x_0 + x_1) + x_2) + ...; reduce_scatter, at rank j, as the ring
//   ring            of segment j (of n in each chunk, see kRingSegmentBytes)
//                   ((x_j + x_j+1) + x_j+2) + ...; reduce (the chain) from the rank
//                   that is furthest from the root down to it
//   tree, one-root  (root + first child) + second child, of one-root + third and so on
//   halving         pairs n/2 apart, then n/4, ...; ranks beyond the power of 2 first, in pairs
//   by-host         first those of each host: the rank that adds them, then the others in order;
//                   then the hosts': all_reduce and reduce (the chain) as the ring does
//                   (by-host-halving: as halving does),
//                   reduce_scatter the receiver's host, then the others in order behind it
// Memory beside the caller's, kept by the communicator for the next operation: direct all_reduce
// S, reduce S, ring reduce_scatter 2S, halving reduce_scatter nS, by-host reduce_scatter n/k S,
// all_to_all in place nS.
//
// Sources: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", JPDC 2009 (ring);
// Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
// IJHPCA 2005 (halving, tree, dissemination).
// Small is up to so many bytes that a rank sends (broadcast: that the block has); of all_gather and
// reduce_scatter with one level up to kDirectBytesMax.
constexpr size_t kSmallBytesMax = size_t{32} << 10;
constexpr size_t kDirectBytesMax = size_t{1} << 20;
constexpr int kDirectRanksMax = 8;
constexpr size_t kTreeBytesMax = size_t{4} << 10;
// Latency times bandwidth: measured were on one machine (bench/results) over TCP 10.6 us and
// 2.06 GB/s, in memory 1.2 us and 11.1 GB/s, with shared cores 5.4 us and 5.66 GB/s; a network of
// 25 Gbit/s with 20 us has 64 KiB.
constexpr size_t kStepBytesBetweenHosts = size_t{64} << 10;
constexpr size_t kStepBytesOnHost = size_t{8} << 10;
// By host, memory carries so many times what the network does.
constexpr double kHostTimesNetwork = 4;

// A ring all_reduce among ranks of one host goes through the block in chunks of n such segments, of
// which there are at most so many: what a rank has just added goes on while it is in its caches
// (bench/results: 16 MiB of two ranks in 0.73 of the time).
constexpr size_t kRingSegmentBytes = size_t{256} << 10;
constexpr size_t kRingChunksMax = 1024;

struct Segment {
  int64_t begin = 0;  // elements
  int64_t end = 0;
};
// The `index`-th of `parts` segments of `count` elements: contiguous, sizes differing by at most 1.
Segment ring_segment(int64_t count, int parts, int index);

// An operation as one rank of its group sees it.
struct Task {
  Collective kind = Collective::kBarrier;
  Algorithm algorithm = Algorithm::kAuto;
  int rank = 0;
  int size = 1;
  int root = 0;  // of kSend and kReceive: the other side
  int64_t count = 0;
  DataType type = DataType::kU8;
  ReduceOp op = ReduceOp::kSum;
  bool in_place = false;  // input and output are the same memory (where both are blocks or both n)
  std::span<const int64_t> send_counts;  // all_to_all by counts, else empty
  std::span<const int64_t> receive_counts;
  const HostMap* hosts = nullptr;  // null: all ranks are on one
};

// Never kAuto. kInvalid if the operation does not have the algorithm, naming those that it has.
Result<Algorithm> choose_algorithm(const Task& task);

// The plan of this rank; task.algorithm as chosen. Pure.
void make_plan(const Task& task, MovePlan& plan);

}  // namespace lockstep
