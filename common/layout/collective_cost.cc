#include "common/layout/collective_cost.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>

namespace lockstep {
namespace {

int64_t floor_log2(int64_t n) {
  return static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(n))) - 1;
}

bool is_power_of_two(int64_t n) {
  return std::has_single_bit(static_cast<uint64_t>(n));
}

double piece_of(const CollectiveCase& what) {
  return std::min(what.block_bytes, static_cast<double>(kPieceBytes));
}

// Returns the largest number of set bits in any number from 0 to `last`.
int64_t most_bits(uint64_t last) {
  int most = std::popcount(last);
  for (int bit = 0; last >> bit != 0; ++bit) {
    if ((last >> bit & 1) != 0) most = std::max(most, std::popcount(last >> (bit + 1)) + bit);
  }
  return most;
}

// A binary tree in which every level but the last is full. `steps` and `behind` describe the path
// from the root to the leaf that is reached last; a right child is sent to right after its left
// sibling.
struct Tree {
  double depth = 0;
  double steps = 0;
  double behind = 0;
  double children = 1;
};
Tree tree_of(int64_t ranks) {
  const int64_t depth = floor_log2(ranks);
  Tree tree{.depth = static_cast<double>(depth), .children = ranks == 2 ? 1.0 : 2.0};
  // The last leaf is either the rightmost one of the level above the last, or one in the last
  // level.
  const int64_t right_turns = most_bits(static_cast<uint64_t>(ranks - (int64_t{1} << depth)));
  const bool above = 2 * (depth - 1) > depth + right_turns;
  tree.steps = static_cast<double>(above ? depth - 1 : depth);
  tree.behind = static_cast<double>(above ? depth - 1 : right_turns);
  return tree;
}

CollectiveSteps halving_all_reduce_steps(const CollectiveCase& what) {
  const int64_t levels = floor_log2(what.ranks);
  const auto power = static_cast<double>(int64_t{1} << levels);
  const double paired = is_power_of_two(what.ranks) ? 0 : 2;
  return {2 * static_cast<double>(levels) + paired, 0,
          2 * (power - 1) / power * what.block_bytes + paired * what.block_bytes};
}

CollectiveSteps all_reduce_steps(const CollectiveCase& what) {
  const auto n = static_cast<double>(what.ranks);
  const double block = what.block_bytes;
  switch (what.algorithm) {
    case CollectiveAlgorithm::kDirect:
      return {1, n - 2, (n - 1) * block};
    case CollectiveAlgorithm::kRing:
      return {2 * (n - 1), 0, 2 * (n - 1) / n * block};
    case CollectiveAlgorithm::kTree: {
      const Tree tree = tree_of(what.ranks);
      const double times = what.ranks == 2 ? 1 : what.ranks < 5 ? 2 : 3;
      return {tree.depth + tree.steps, tree.behind,
              times * block + (2 * tree.depth - 1) * piece_of(what)};
    }
    case CollectiveAlgorithm::kHalving:
    case CollectiveAlgorithm::kByHost:
    case CollectiveAlgorithm::kByHostHalving:
      break;
  }
  return halving_all_reduce_steps(what);
}

// Also the steps of a reduce, where messages that arrive from two children do not wait for each
// other.
CollectiveSteps broadcast_steps(const CollectiveCase& what) {
  if (what.algorithm == CollectiveAlgorithm::kRing) {
    const auto n = static_cast<double>(what.ranks);
    return {n - 1, 0, what.block_bytes + (n - 2) * piece_of(what)};
  }
  const Tree tree = tree_of(what.ranks);
  const double bytes = tree.children * (what.block_bytes + (tree.depth - 1) * piece_of(what));
  if (what.kind == CollectiveKind::kReduce) return {tree.depth, 0, bytes};
  return {tree.steps, tree.behind, bytes};
}

bool has_two_levels(const CollectiveCase& what) {
  return what.hosts > 1 && what.hosts < what.ranks;
}

double ranks_of_host(const CollectiveCase& what) {
  return static_cast<double>(what.ranks) / static_cast<double>(what.hosts);
}

CollectiveCost by_host_cost(const CollectiveCase& what) {
  const auto m = static_cast<double>(what.hosts);
  const double k = ranks_of_host(what);
  const double block = what.block_bytes;
  if (what.kind == CollectiveKind::kAllReduce) {
    const CollectiveSteps ring{2 * (m - 1), 0, 2 * (m - 1) / m * block};
    const bool halves = what.algorithm == CollectiveAlgorithm::kByHostHalving;
    return {.network = halves
                           ? halving_all_reduce_steps({.ranks = what.hosts, .block_bytes = block})
                           : ring,
            .within = {2, std::max(0.0, 2 * (k - 2)), 2 * (k - 1) / k * block}};
  }
  if (what.kind == CollectiveKind::kBroadcast || what.kind == CollectiveKind::kReduce) {
    return {.network = {m - 1, 0, block + (m - 2) * piece_of(what)},
            .within = {k - 1, 0, block + std::max(0.0, k - 2) * piece_of(what)}};
  }
  return {.network = {1, m - 2, (m - 1) * k * block},
          .within = {2, std::max(0.0, m * (k - 1) - 2), m * (k - 1) * block}};
}

bool has(const CollectiveCase& what) {
  const CollectiveAlgorithm algorithm = what.algorithm;
  if (algorithm == CollectiveAlgorithm::kByHost) {
    return has_two_levels(what) && what.kind != CollectiveKind::kAllToAll;
  }
  if (algorithm == CollectiveAlgorithm::kByHostHalving) {
    return has_two_levels(what) && what.kind == CollectiveKind::kAllReduce;
  }
  switch (what.kind) {
    case CollectiveKind::kAllReduce:
      return true;
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllGather:
      return algorithm == CollectiveAlgorithm::kDirect || algorithm == CollectiveAlgorithm::kRing ||
             (algorithm == CollectiveAlgorithm::kHalving && is_power_of_two(what.ranks));
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce:
      return algorithm == CollectiveAlgorithm::kTree || algorithm == CollectiveAlgorithm::kRing;
    case CollectiveKind::kAllToAll:
      return algorithm == CollectiveAlgorithm::kDirect;
  }
  return false;
}

CollectiveSteps flat_steps(const CollectiveCase& what) {
  switch (what.kind) {
    case CollectiveKind::kAllReduce:
      return all_reduce_steps(what);
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce:
      return broadcast_steps(what);
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllGather:
    case CollectiveKind::kAllToAll:
      break;
  }
  const auto others = static_cast<double>(what.ranks - 1);
  const double bytes = others * what.block_bytes;
  if (what.algorithm == CollectiveAlgorithm::kDirect) return {1, others - 1, bytes};
  if (what.algorithm == CollectiveAlgorithm::kRing) return {others, 0, bytes};
  return {static_cast<double>(floor_log2(what.ranks)), 0, bytes};
}

// Cost of a message sent right after another one, in latencies.
constexpr double kBehind = 0.5;

double latencies(const CollectiveSteps& steps) {
  return steps.steps + kBehind * steps.behind;
}

struct Sums {
  double aa = 0, ab = 0, bb = 0, ay = 0, by = 0;
};

}  // namespace

std::string_view name_of(CollectiveKind kind) {
  constexpr std::string_view kNames[] = {"all_reduce", "reduce_scatter", "all_gather",
                                         "broadcast",  "reduce",         "all_to_all"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view name_of(CollectiveAlgorithm algorithm) {
  constexpr std::string_view kNames[] = {"direct",  "ring",    "tree",
                                         "halving", "by-host", "by-host-halving"};
  return kNames[static_cast<size_t>(algorithm)];
}

Result<CollectiveCost> collective_steps(const CollectiveCase& what) {
  if (what.ranks < 1 || what.block_bytes < 0) {
    return invalid("[cost] expected at least 1 rank and at least 0 bytes, got " +
                   std::to_string(what.ranks) + " ranks and " + std::to_string(what.block_bytes) +
                   " bytes");
  }
  if (!has(what)) {
    return invalid("[cost] " + std::string(name_of(what.kind)) + " of " +
                   std::to_string(what.ranks) + " ranks has no algorithm '" +
                   std::string(name_of(what.algorithm)) + "'");
  }
  if (what.ranks == 1) return CollectiveCost{};
  if (what.algorithm == CollectiveAlgorithm::kByHost ||
      what.algorithm == CollectiveAlgorithm::kByHostHalving) {
    return by_host_cost(what);
  }
  CollectiveCost cost{.network = flat_steps(what), .within = {}};
  if (has_two_levels(what) && what.algorithm != CollectiveAlgorithm::kRing) {
    cost.network.bytes *= ranks_of_host(what);
  }
  return cost;
}

Result<double> collective_seconds(const CollectiveCase& what, const Network& network) {
  TRY_ASSIGN(const CollectiveCost cost, collective_steps(what));
  const double shared =
      network.cores == 0
          ? 1
          : std::max(1.0, static_cast<double>(what.ranks) / static_cast<double>(network.cores));
  const double between_s = cost.network.bytes / network.bytes_per_s;
  const double within_s = cost.within.bytes / network.host_bytes_per_s;
  return shared * (latencies(cost.network) * network.latency_s +
                   latencies(cost.within) * network.host_latency_s + std::max(between_s, within_s));
}

CollectiveAlgorithm fastest_algorithm(const CollectiveCase& what, const Network& network) {
  CollectiveAlgorithm fastest = CollectiveAlgorithm::kDirect;
  double least = std::numeric_limits<double>::infinity();
  for (int algorithm = 0; algorithm < kCollectiveAlgorithms; ++algorithm) {
    CollectiveCase candidate = what;
    candidate.algorithm = static_cast<CollectiveAlgorithm>(algorithm);
    const auto seconds = collective_seconds(candidate, network);
    if (!seconds.ok() || *seconds >= least) continue;
    least = *seconds;
    fastest = candidate.algorithm;
  }
  return fastest;
}

// Each time t is latency * a + b / bandwidth. Both sides are divided by t, so that short operations
// count as much as long ones.
Result<Network> fit_network(std::span<const TimedCollective> measured, int64_t cores) {
  Sums sums;
  for (const TimedCollective& timed : measured) {
    if (!(timed.seconds > 0)) return invalid("[cost] expected measured times above 0");
    const Network unit{
        .latency_s = 1, .bytes_per_s = std::numeric_limits<double>::infinity(), .cores = cores};
    TRY_ASSIGN(const double steps, collective_seconds(timed.what, unit));
    TRY_ASSIGN(const double bytes,
               collective_seconds(timed.what, {.bytes_per_s = 1, .cores = cores}));
    const double a = steps / timed.seconds;
    const double b = bytes / timed.seconds;
    sums.aa += a * a;
    sums.ab += a * b;
    sums.bb += b * b;
    sums.ay += a;
    sums.by += b;
  }
  const double determinant = sums.aa * sums.bb - sums.ab * sums.ab;
  if (!(determinant > 1e-12 * sums.aa * sums.bb)) {
    return invalid("[cost] expected measurements of at least two different sizes");
  }
  const double latency = (sums.ay * sums.bb - sums.by * sums.ab) / determinant;
  const double inverse = (sums.by * sums.aa - sums.ay * sums.ab) / determinant;
  if (inverse <= 0) return invalid("[cost] no bandwidth fits these measurements");
  if (latency < 0) {
    return Network{.latency_s = 0, .bytes_per_s = sums.bb / sums.by, .cores = cores};
  }
  return Network{.latency_s = latency, .bytes_per_s = 1 / inverse, .cores = cores};
}

}  // namespace lockstep
