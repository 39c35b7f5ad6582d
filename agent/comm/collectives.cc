#include "agent/comm/collectives.h"

#include <algorithm>
#include <bit>
#include <string>

#include "agent/comm/algorithms.h"
#include "common/base/check.h"
#include "common/layout/collective_cost.h"

namespace lockstep {
namespace {

// What the operation has, the table of collectives.h as data.
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

// Why the task can't have it; empty: it can.
const char* lacking(const Entry& entry, const Task& task) {
  if (entry.powers_of_two && !is_power_of_two(task.size)) return " (it is for powers of two)";
  if (entry.two_levels && !has_two_levels(task)) {
    return " (it is for several hosts, of which one at least has several ranks)";
  }
  return "";
}

const Entry* find(Collective kind, Algorithm algorithm) {
  const auto* found = std::find_if(std::begin(kEntries), std::end(kEntries), [&](const Entry& e) {
    return e.kind == kind && e.algorithm == algorithm;
  });
  return found == std::end(kEntries) ? nullptr : found;
}

bool halving_pays(const Task& task, CollectiveKind kind) {
  if (kind != CollectiveKind::kAllReduce && !is_power_of_two(task.size)) return false;
  const bool on_one_host = task.hosts == nullptr || task.hosts->hosts() == 1;
  const Network network{
      .latency_s = static_cast<double>(on_one_host ? kStepBytesOnHost : kStepBytesBetweenHosts),
      .bytes_per_s = 1};
  const auto cost = [&](CollectiveWay way) {
    return collective_seconds({.kind = kind,
                               .way = way,
                               .ranks = task.size,
                               .block_bytes = static_cast<double>(block_bytes(task))},
                              network)
        .value();
  };
  return cost(CollectiveWay::kHalving) <= cost(CollectiveWay::kRing) * 7 / 8;
}

// For what is large.
Algorithm choose_large(const Task& task) {
  if (has_two_levels(task)) return Algorithm::kByHost;
  const bool pays =
      (task.kind == Collective::kAllReduce && halving_pays(task, CollectiveKind::kAllReduce)) ||
      (task.kind == Collective::kAllGather && halving_pays(task, CollectiveKind::kAllGather)) ||
      (task.kind == Collective::kReduceScatter &&
       halving_pays(task, CollectiveKind::kReduceScatter));
  return pays ? Algorithm::kHalving : Algorithm::kRing;
}

Algorithm choose(const Task& task) {
  const size_t others = static_cast<size_t>(task.size - 1);
  const size_t block = block_bytes(task);
  const bool small = others * block <= kSmallBytesMax;
  switch (task.kind) {
    case Collective::kAllReduce:
      return small ? Algorithm::kDirect : choose_large(task);
    case Collective::kReduce:
      return small ? Algorithm::kTree : choose_large(task);
    case Collective::kBroadcast:
      return block <= kSmallBytesMax ? Algorithm::kTree : choose_large(task);
    case Collective::kAllGather:
    case Collective::kReduceScatter:
      if (small || (!has_two_levels(task) && others * block <= kDirectBytesMax)) {
        return Algorithm::kDirect;
      }
      return choose_large(task);
    case Collective::kScatter:
    case Collective::kGather:
      return Algorithm::kOneRoot;
    case Collective::kBarrier:
      return task.size <= kDirectBarrierMax ? Algorithm::kDirect : Algorithm::kHalving;
    case Collective::kForm:
    case Collective::kAllToAll:
    case Collective::kSend:
    case Collective::kReceive:
      return Algorithm::kDirect;
  }
  CHECK(false);
}

Error no_such_algorithm(const Task& task, const char* because) {
  std::string has;
  for (const Entry& entry : kEntries) {
    if (entry.kind != task.kind) continue;
    if (*lacking(entry, task) != '\0') continue;
    has += std::string(has.empty() ? "" : ", ") + name_of(entry.algorithm);
  }
  return invalid(std::string("[comm] ") + name_of(task.kind) + " of " + std::to_string(task.size) +
                 " ranks has no algorithm '" + name_of(task.algorithm) + "'" + because +
                 "; it has: auto, " + (has.empty() ? "direct" : has));
}

// A group of one.
void make_lonely_plan(const Task& task, MovePlan& plan) {
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
  if (const char* because = lacking(*entry, task); *because != '\0') {
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
    make_lonely_plan(task, plan);
  } else {
    const Entry* entry = find(task.kind, task.algorithm);
    CHECK(entry != nullptr);
    entry->make(task, plan);
  }
}

}  // namespace lockstep
