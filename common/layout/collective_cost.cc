#include "common/layout/collective_cost.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>

namespace lockstep {
namespace {

// What a pipelined hop waits for.
constexpr double kPieceBytes = 64 << 10;

int64_t floor_log2(int64_t n) {
  return static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(n))) - 1;
}

bool is_power_of_two(int64_t n) {
  return std::has_single_bit(static_cast<uint64_t>(n));
}

double piece_of(const CollectiveCase& what) {
  return std::min(what.block_bytes, kPieceBytes);
}

// Hops of a binary tree from its root to the last leaf, and the messages of each.
struct Tree {
  double depth = 0;
  double children = 1;
};
Tree tree_of(int64_t ranks) {
  return {.depth = static_cast<double>(floor_log2(ranks)), .children = ranks == 2 ? 1.0 : 2.0};
}

CollectiveSteps halving_all_reduce_steps(const CollectiveCase& what) {
  const int64_t levels = floor_log2(what.ranks);
  const auto power = static_cast<double>(int64_t{1} << levels);
  const double paired = is_power_of_two(what.ranks) ? 0 : 2;
  return {2 * static_cast<double>(levels) + paired,
          2 * (power - 1) / power * what.block_bytes + paired * what.block_bytes};
}

CollectiveSteps all_reduce_steps(const CollectiveCase& what) {
  const auto n = static_cast<double>(what.ranks);
  const double block = what.block_bytes;
  switch (what.way) {
    case CollectiveWay::kDirect:
      return {n - 1, (n - 1) * block};
    case CollectiveWay::kRing:
      return {2 * (n - 1), 2 * (n - 1) / n * block};
    case CollectiveWay::kTree: {
      const Tree tree = tree_of(what.ranks);
      const double times = what.ranks == 2 ? 1 : what.ranks < 5 ? 2 : 3;
      return {2 * tree.depth * tree.children,
              times * block + (2 * tree.depth - 1) * piece_of(what)};
    }
    case CollectiveWay::kHalving:
      break;
  }
  return halving_all_reduce_steps(what);
}

CollectiveSteps broadcast_steps(const CollectiveCase& what) {
  if (what.way == CollectiveWay::kRing) {
    const auto n = static_cast<double>(what.ranks);
    return {n - 1, what.block_bytes + (n - 2) * piece_of(what)};
  }
  const Tree tree = tree_of(what.ranks);
  return {tree.depth * tree.children,
          tree.children * (what.block_bytes + (tree.depth - 1) * piece_of(what))};
}

bool has(const CollectiveCase& what) {
  const CollectiveWay way = what.way;
  switch (what.kind) {
    case CollectiveKind::kAllReduce:
      return true;
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllGather:
      return way == CollectiveWay::kDirect || way == CollectiveWay::kRing ||
             (way == CollectiveWay::kHalving && is_power_of_two(what.ranks));
    case CollectiveKind::kBroadcast:
      return way == CollectiveWay::kTree || way == CollectiveWay::kRing;
    case CollectiveKind::kAllToAll:
      return way == CollectiveWay::kDirect;
  }
  return false;
}

struct Sums {
  double aa = 0, ab = 0, bb = 0, ay = 0, by = 0;
};

}  // namespace

std::string_view name_of(CollectiveKind kind) {
  constexpr std::string_view kNames[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                         "all_to_all"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view name_of(CollectiveWay way) {
  constexpr std::string_view kNames[] = {"direct", "ring", "tree", "halving"};
  return kNames[static_cast<size_t>(way)];
}

Result<CollectiveSteps> collective_steps(const CollectiveCase& what) {
  if (what.ranks < 1 || what.block_bytes < 0) {
    return invalid("[cost] a collective has one rank or more and no negative bytes, not " +
                   std::to_string(what.ranks) + " and " + std::to_string(what.block_bytes));
  }
  if (!has(what)) {
    return invalid("[cost] " + std::string(name_of(what.kind)) + " of " +
                   std::to_string(what.ranks) + " ranks has no way '" +
                   std::string(name_of(what.way)) + "'");
  }
  if (what.ranks == 1) return CollectiveSteps{};
  if (what.kind == CollectiveKind::kAllReduce) return all_reduce_steps(what);
  if (what.kind == CollectiveKind::kBroadcast) return broadcast_steps(what);
  const auto others = static_cast<double>(what.ranks - 1);
  const bool halves = what.way == CollectiveWay::kHalving;
  return CollectiveSteps{halves ? static_cast<double>(floor_log2(what.ranks)) : others,
                         others * what.block_bytes};
}

Result<double> collective_seconds(const CollectiveCase& what, const Network& network) {
  TRY_ASSIGN(const CollectiveSteps steps, collective_steps(what));
  const double shared =
      network.cores == 0
          ? 1
          : std::max(1.0, static_cast<double>(what.ranks) / static_cast<double>(network.cores));
  return shared * (steps.steps * network.latency_s + steps.bytes / network.bytes_per_s);
}

CollectiveWay fastest_way(const CollectiveCase& what, const Network& network) {
  CollectiveWay fastest = CollectiveWay::kDirect;
  double least = std::numeric_limits<double>::infinity();
  for (int way = 0; way < kCollectiveWays; ++way) {
    CollectiveCase candidate = what;
    candidate.way = static_cast<CollectiveWay>(way);
    const auto seconds = collective_seconds(candidate, network);
    if (!seconds.ok() || *seconds >= least) continue;
    least = *seconds;
    fastest = candidate.way;
  }
  return fastest;
}

// Each time t is latency * a + b / bandwidth; both sides are divided by t, so that short operations
// count as much as long ones.
Result<Network> fit_network(std::span<const TimedCollective> measured, int64_t cores) {
  Sums sums;
  for (const TimedCollective& timed : measured) {
    if (!(timed.seconds > 0)) return invalid("[cost] a measured time is above zero");
    const Network unit{
        .latency_s = 1, .bytes_per_s = std::numeric_limits<double>::infinity(), .cores = cores};
    TRY_ASSIGN(const double steps, collective_seconds(timed.what, unit));
    TRY_ASSIGN(const double bytes, collective_seconds(timed.what, {0, 1, cores}));
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
    return invalid("[cost] latency and bandwidth can't be told apart by these measurements");
  }
  const double latency = (sums.ay * sums.bb - sums.by * sums.ab) / determinant;
  const double inverse = (sums.by * sums.aa - sums.ay * sums.ab) / determinant;
  if (inverse <= 0) return invalid("[cost] no bandwidth explains these measurements");
  if (latency < 0) {
    return Network{.latency_s = 0, .bytes_per_s = sums.bb / sums.by, .cores = cores};
  }
  return Network{.latency_s = latency, .bytes_per_s = 1 / inverse, .cores = cores};
}

}  // namespace lockstep
