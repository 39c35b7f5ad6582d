#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "agent/comm/communicator.h"
#include "agent/comm/host_map.h"
#include "agent/comm/move_plan.h"
#include "common/base/result.h"

namespace lockstep::comm {

// clang-format off
// The algorithms, for n ranks and a block of S bytes (`count` elements): the most bytes that a rank
// sends, and the hops, that is how often data travels from rank to rank in sequence. kAuto chooses
// by operation, n, S and the hosts alone. Two levels: the group is on several hosts, at least one
// of which has several ranks.
//
//   operation      | algorithm | bytes sent per rank, at most     | hops
//   all_reduce     | direct    | (n-1)S                           | 1
//                  | by-host   | see below                        | 2m, pipelined
//                  | ~-halving | see below                        | 2 lg m + 2 (+2)
//                  | halving   | 2(n-1)/n S; n not 2^k: + S       | 2 lg n (+2)
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
//   barrier        | direct    | headers only                     | 1
//                  | halving   | headers only (by distance)       | lg n, rounded up
//   send           | direct    | S                                | 1
//
// Bytes that leave a host, at most, with m hosts of k ranks each (n = mk). The columns other than
// by-host assume that ranks are numbered host by host; otherwise more bytes leave:
//   operation      | by-host     | ring        | direct
//   all_reduce     | 2(m-1)/m S  | 2(n-1)/n S  | k(n-k) S
//   ~, ~-halving   | 2(m-1)/m S; m not 2^k: 2(p-1)/p S + S, with p the power of 2 below m
//   reduce         | S           | S           |
//   broadcast      | S           | S           |
//   all_gather     | (n-k) S     | (n-1) S     | k(n-k) S
//   reduce_scatter | (n-k) S     | (n-1) S     | k(n-k) S
// With by-host, a rank sends 2(k-1)/k S + 2(m-1)/n S in an all_reduce; the second part leaves the
// host. by-host-halving (all_reduce only) uses recursive halving and doubling between the hosts
// instead of by-host's ring: fewer steps with many hosts.
// If hosts have different numbers of ranks, the ranks of a smaller host do several ranks' part
// between hosts. The bytes that leave a host stay the same, except in all_gather ((m-1) k S) and
// reduce_scatter ((n-k) S with the host's own k).
// clang-format on
//
// kAuto considers every algorithm except one-root. It takes the first one, in its order of
// preference, whose time is at most 8/7 of the best one's by the model of
// common/layout/collective_cost.h. In the model a step costs as much time as kStepBytes... take to
// travel. The order is:
// - for small operations (kSmallBytesMax, kDirectBytesMax): direct, halving, tree, by-host, ring,
//   by-host-halving
// - for others: by-host, ring, halving, by-host-halving, tree, direct. A ring sends to its
//   neighbour what the others send across the whole network, and the model knows nothing of that.
// Up to kDirectRanksMax ranks, small operations skip the model:
// - They go direct if they can (measured on a busy machine: 1.5 to 2.7 times as fast as halving, 8
//   bytes on 4 and 8 ranks).
// - Without a direct algorithm, and with one level, they take the tree up to kTreeBytesMax.
// A barrier is direct up to kDirectRanksMax ranks, and by halving beyond.
//
// An algorithm that an operation does not have is refused (kInvalid).
//
// The order in which x_0 ... x_n-1 are summed, the same for every rank and run:
//   direct          all_reduce ((x_0 + x_1) + x_2) + ...; reduce_scatter, at rank j, as the ring
//   ring            of segment j (of n in each chunk, see kRingSegmentBytes)
//                   ((x_j + x_j+1) + x_j+2) + ...; reduce (the chain) from the rank
//                   that is furthest from the root down to it
//   tree, one-root  (root + first child) + second child; one-root goes on with the third, ...
//   halving         pairs n/2 apart, then n/4, ...; ranks beyond the power of 2 first, in pairs
//   by-host         first within each host: the adding rank's own, then the others in order;
//                   then between the hosts: all_reduce and reduce (the chain) as the ring does
//                   (by-host-halving: as halving does),
//                   reduce_scatter the receiver's host, then the hosts after it in order
// Scratch memory, which the communicator keeps for the next operation: direct all_reduce S, reduce
// S, ring reduce_scatter 2S, halving reduce_scatter nS, by-host reduce_scatter n/k S, all_to_all
// in-place nS.
//
// Sources: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", JPDC 2009 (ring);
// Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
// IJHPCA 2005 (halving, tree, dissemination).
//
// An operation is small if a rank sends at most kSmallBytesMax (a broadcast: if the block has at
// most that). With one level, all_gather and reduce_scatter are small up to kDirectBytesMax.
constexpr size_t kSmallBytesMax = size_t{32} << 10;
constexpr size_t kDirectBytesMax = size_t{1} << 20;
constexpr int kDirectRanksMax = 8;
constexpr size_t kTreeBytesMax = size_t{4} << 10;
// Latency times bandwidth. Measured on one machine (bench/results): TCP 10.6 us and 2.06 GB/s;
// shared memory 1.2 us and 11.1 GB/s, with shared cores 5.4 us and 5.66 GB/s. A network of 25
// Gbit/s and 20 us has 64 KiB.
constexpr size_t kStepBytesBetweenHosts = size_t{64} << 10;
constexpr size_t kStepBytesOnHost = size_t{8} << 10;
// In by-host algorithms: bandwidth of memory within a host, relative to the network's.
constexpr double kHostTimesNetwork = 4;

// A ring all_reduce among ranks of one host processes the block in chunks of n such segments, at
// most kRingChunksMax. A rank then sends on what it has just added while that is in its caches
// (bench/results: 16 MiB of two ranks in 0.73 of the time).
constexpr size_t kRingSegmentBytes = size_t{256} << 10;
constexpr size_t kRingChunksMax = 1024;

struct Segment {
  int64_t begin = 0;  // elements
  int64_t end = 0;
};
// Returns the `index`-th of `parts` segments of `count` elements: contiguous, with sizes that
// differ by at most 1.
Segment ring_segment(int64_t count, int parts, int index);

// An operation as one rank of its group sees it.
struct Task {
  Collective kind = Collective::kBarrier;
  Algorithm algorithm = Algorithm::kAuto;
  int rank = 0;
  int size = 1;
  int root = 0;  // kSend and kReceive: the peer
  int64_t count = 0;
  DataType type = DataType::kU8;
  ReduceOp op = ReduceOp::kSum;
  bool in_place = false;  // input and output overlap; if their sizes are equal, they are the same
  std::span<const int64_t> send_counts;  // all_to_all by counts; else empty
  std::span<const int64_t> receive_counts;
  const HostMap* hosts = nullptr;  // null: all ranks are on one host
};

// Resolves kAuto; never returns it. kInvalid if the operation does not have the algorithm; the
// error names those that it has.
Result<Algorithm> choose_algorithm(const Task& task);

// Makes the plan of this rank. task.algorithm comes from choose_algorithm(). Pure.
void make_plan(const Task& task, MovePlan& plan);

}  // namespace lockstep::comm
