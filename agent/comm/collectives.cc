#include "agent/comm/collectives.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <string>
#include <utility>

#include "agent/comm/algorithms.h"
#include "common/base/check.h"
#include "common/layout/collective_cost.h"

namespace lockstep::comm {
namespace {

// The table of collectives.h as data: an algorithm of an operation.
struct Entry {
  Collective kind;
  Algorithm algorithm;
  void (*make)(const Task&, MovePlan&);
  bool powers_of_two = false;
  bool two_levels = false;
};

constexpr Entry kEntries[] = {
    {Collective::kAllReduce, Algorithm::kDirect, direct_all_reduce},
    {Collective::kAllReduce, Algorithm::kRing, ring_all_reduce},
    {Collective::kAllReduce, Algorithm::kHalving, halving_all_reduce},
    {Collective::kAllReduce, Algorithm::kTree, tree_all_reduce},
    {Collective::kAllReduce, Algorithm::kOneRoot, one_root_all_reduce},
    {Collective::kReduce, Algorithm::kTree, tree_reduce},
    {Collective::kReduce, Algorithm::kRing, chain_reduce},
    {Collective::kReduce, Algorithm::kOneRoot, one_root_reduce},
    {Collective::kBroadcast, Algorithm::kTree, tree_broadcast},
    {Collective::kBroadcast, Algorithm::kRing, chain_broadcast},
    {Collective::kBroadcast, Algorithm::kOneRoot, one_root_broadcast},
    {Collective::kAllGather, Algorithm::kDirect, direct_all_gather},
    {Collective::kAllGather, Algorithm::kRing, ring_all_gather},
    {Collective::kAllGather, Algorithm::kHalving, doubling_all_gather, true},
    {Collective::kReduceScatter, Algorithm::kDirect, direct_reduce_scatter},
    {Collective::kReduceScatter, Algorithm::kRing, ring_reduce_scatter},
    {Collective::kReduceScatter, Algorithm::kHalving, halving_reduce_scatter, true},
    {Collective::kAllReduce, Algorithm::kByHost, hosts_all_reduce, false, true},
    {Collective::kAllReduce, Algorithm::kByHostHalving, hosts_halving_all_reduce, false, true},
    {Collective::kReduce, Algorithm::kByHost, hosts_reduce, false, true},
    {Collective::kBroadcast, Algorithm::kByHost, hosts_broadcast, false, true},
    {Collective::kAllGather, Algorithm::kByHost, hosts_all_gather, false, true},
    {Collective::kReduceScatter, Algorithm::kByHost, hosts_reduce_scatter, false, true},
    {Collective::kScatter, Algorithm::kOneRoot, one_root_scatter},
    {Collective::kGather, Algorithm::kOneRoot, one_root_gather},
    {Collective::kAllToAll, Algorithm::kDirect, direct_all_to_all},
    {Collective::kBarrier, Algorithm::kDirect, direct_barrier},
    {Collective::kBarrier, Algorithm::kHalving, dissemination_barrier},
    {Collective::kForm, Algorithm::kDirect, direct_barrier},
};

bool is_power_of_two(int n) {
  return std::has_single_bit(static_cast<unsigned>(n));
}

bool has_two_levels(const Task& task) {
  return task.hosts != nullptr && task.hosts->has_two_levels();
}

// Returns why the task cannot use it; empty if it can.
const char* unmet_requirement(const Entry& entry, const Task& task) {
  if (entry.powers_of_two && !is_power_of_two(task.size)) return " (it needs a power of two ranks)";
  if (entry.two_levels && !has_two_levels(task)) {
    return " (it needs several hosts, at least one of them with several ranks)";
  }
  return "";
}

const Entry* find(Collective kind, Algorithm algorithm) {
  const auto* found = std::find_if(std::begin(kEntries), std::end(kEntries), [&](const Entry& e) {
    return e.kind == kind && e.algorithm == algorithm;
  });
  return found == std::end(kEntries) ? nullptr : found;
}

// The operations that have several algorithms, with their names in the cost model.
constexpr std::pair<Collective, CollectiveKind> kModelled[] = {
    {Collective::kAllReduce, CollectiveKind::kAllReduce},
    {Collective::kReduce, CollectiveKind::kReduce},
    {Collective::kBroadcast, CollectiveKind::kBroadcast},
    {Collective::kAllGather, CollectiveKind::kAllGather},
    {Collective::kReduceScatter, CollectiveKind::kReduceScatter}};
constexpr std::pair<Algorithm, CollectiveAlgorithm> kWays[] = {
    {Algorithm::kDirect, CollectiveAlgorithm::kDirect},
    {Algorithm::kTree, CollectiveAlgorithm::kTree},
    {Algorithm::kByHost, CollectiveAlgorithm::kByHost},
    {Algorithm::kByHostHalving, CollectiveAlgorithm::kByHostHalving},
    {Algorithm::kRing, CollectiveAlgorithm::kRing},
    {Algorithm::kHalving, CollectiveAlgorithm::kHalving}};

// Returns the network between the ranks, with latency in bytes.
Network network_of(const Task& task) {
  const bool on_one_host = task.hosts == nullptr || task.hosts->hosts() == 1;
  return {.latency_s = static_cast<double>(on_one_host ? kStepBytesOnHost : kStepBytesBetweenHosts),
          .bytes_per_s = 1,
          .host_latency_s = static_cast<double>(kStepBytesOnHost) / kHostTimesNetwork,
          .host_bytes_per_s = kHostTimesNetwork};
}

// Takes the first algorithm that is little slower than the best by the cost model. The model knows
// nothing of congestion. So, except for small operations, algorithms that send to few neighbours
// come before those that send across the whole network.
Algorithm choose_by_cost(const Task& task, CollectiveKind kind, bool small) {
  constexpr Algorithm kSmallFirst[] = {Algorithm::kDirect, Algorithm::kHalving,
                                       Algorithm::kTree,   Algorithm::kByHost,
                                       Algorithm::kRing,   Algorithm::kByHostHalving};
  constexpr Algorithm kLargeFirst[] = {Algorithm::kByHost,  Algorithm::kRing,
                                       Algorithm::kHalving, Algorithm::kByHostHalving,
                                       Algorithm::kTree,    Algorithm::kDirect};
  const Network network = network_of(task);
  std::array<double, kAlgorithms> costs;
  costs.fill(std::numeric_limits<double>::infinity());
  for (const auto& [algorithm, way] : kWays) {
    const Entry* entry = find(task.kind, algorithm);
    if (entry == nullptr || *unmet_requirement(*entry, task) != '\0') continue;
    costs[static_cast<size_t>(algorithm)] =
        collective_seconds({.kind = kind,
                            .algorithm = way,
                            .ranks = task.size,
                            .block_bytes = static_cast<double>(block_bytes(task)),
                            .hosts = task.hosts == nullptr ? 0 : task.hosts->hosts()},
                           network)
            .value();
  }
  const double enough = *std::min_element(costs.begin(), costs.end()) * 8 / 7;
  for (const Algorithm algorithm : small ? kSmallFirst : kLargeFirst) {
    if (costs[static_cast<size_t>(algorithm)] <= enough) return algorithm;
  }
  CHECK(false);
}

bool is_small(const Task& task) {
  const size_t block = block_bytes(task);
  if (task.kind == Collective::kBroadcast) return block <= kSmallBytesMax;
  const bool direct =
      task.kind == Collective::kAllGather || task.kind == Collective::kReduceScatter;
  const size_t most = direct && !has_two_levels(task) ? kDirectBytesMax : kSmallBytesMax;
  return static_cast<size_t>(task.size - 1) * block <= most;
}

Algorithm choose(const Task& task) {
  const bool small = is_small(task);
  for (const auto& [collective, kind] : kModelled) {
    if (collective != task.kind) continue;
    if (small && task.size <= kDirectRanksMax) {
      if (find(task.kind, Algorithm::kDirect) != nullptr) return Algorithm::kDirect;
      if (block_bytes(task) <= kTreeBytesMax && !has_two_levels(task)) return Algorithm::kTree;
    }
    return choose_by_cost(task, kind, small);
  }
  if (task.kind == Collective::kScatter || task.kind == Collective::kGather) {
    return Algorithm::kOneRoot;
  }
  if (task.kind == Collective::kBarrier && task.size > kDirectRanksMax) return Algorithm::kHalving;
  return Algorithm::kDirect;
}

Error no_such_algorithm(const Task& task, const char* because) {
  std::string has;
  for (const Entry& entry : kEntries) {
    if (entry.kind != task.kind) continue;
    if (*unmet_requirement(entry, task) != '\0') continue;
    has += std::string(has.empty() ? "" : ", ") + name_of(entry.algorithm);
  }
  return invalid(std::string("[comm] ") + name_of(task.kind) + " of " + std::to_string(task.size) +
                 " ranks has no algorithm '" + name_of(task.algorithm) + "'" + because +
                 "; available: auto, " + (has.empty() ? "direct" : has));
}

// A group of one.
void make_single_rank_plan(const Task& task, MovePlan& plan) {
  if (task.kind == Collective::kBarrier || task.kind == Collective::kForm) return;
  const size_t bytes = task.send_counts.empty()
                           ? block_bytes(task)
                           : static_cast<size_t>(task.send_counts[0]) * element_bytes(task);
  plan.add({.kind = Move::Kind::kCopy, .from = input(0), .into = output(0), .bytes = bytes});
}

}  // namespace

Segment ring_segment(int64_t count, int parts, int index) {
  const int64_t base = count / parts;
  const int64_t longer = count % parts;
  const int64_t begin = base * index + std::min<int64_t>(index, longer);
  return {.begin = begin, .end = begin + base + (index < longer ? 1 : 0)};
}

Result<Algorithm> choose_algorithm(const Task& task) {
  if (task.algorithm == Algorithm::kAuto) return choose(task);
  if (task.kind == Collective::kSend || task.kind == Collective::kReceive) {
    if (task.algorithm == Algorithm::kDirect) return task.algorithm;
    return no_such_algorithm(task, "");
  }
  const Entry* entry = find(task.kind, task.algorithm);
  if (entry == nullptr) return no_such_algorithm(task, "");
  if (const char* because = unmet_requirement(*entry, task); *because != '\0') {
    return no_such_algorithm(task, because);
  }
  return task.algorithm;
}

void make_plan(const Task& task, MovePlan& plan) {
  plan.clear(task.size);
  if (task.kind == Collective::kSend) {
    plan.add({.kind = Move::Kind::kSend,
              .peer = task.root,
              .from = input(0),
              .bytes = block_bytes(task)});
  } else if (task.kind == Collective::kReceive) {
    plan.add({.kind = Move::Kind::kReceive,
              .peer = task.root,
              .into = output(0),
              .bytes = block_bytes(task)});
  } else if (task.size == 1) {
    make_single_rank_plan(task, plan);
  } else {
    const Entry* entry = find(task.kind, task.algorithm);
    CHECK(entry != nullptr);
    entry->make(task, plan);
  }
}

}  // namespace lockstep::comm
