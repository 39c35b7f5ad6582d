// Compares the cost model's table with the plans that are carried out.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <vector>

#include "agent/comm/collectives.h"
#include "common/layout/collective_cost.h"

namespace lockstep::comm {
namespace {

struct Pair {
  CollectiveKind kind;
  Collective collective;
};
constexpr Pair kKinds[] = {{CollectiveKind::kAllReduce, Collective::kAllReduce},
                           {CollectiveKind::kReduceScatter, Collective::kReduceScatter},
                           {CollectiveKind::kAllGather, Collective::kAllGather},
                           {CollectiveKind::kBroadcast, Collective::kBroadcast},
                           {CollectiveKind::kReduce, Collective::kReduce},
                           {CollectiveKind::kAllToAll, Collective::kAllToAll}};
constexpr std::pair<CollectiveAlgorithm, Algorithm> kWays[] = {
    {CollectiveAlgorithm::kDirect, Algorithm::kDirect},
    {CollectiveAlgorithm::kRing, Algorithm::kRing},
    {CollectiveAlgorithm::kTree, Algorithm::kTree},
    {CollectiveAlgorithm::kHalving, Algorithm::kHalving}};

constexpr int64_t kCount = 55440;  // elements of one byte; divisible by every n used here

// Time for a message between hosts, where one within a host takes one unit.
constexpr int64_t kFar = 1'000'000;

// Carries out the plans of all ranks, move by move. A message takes one unit of time (kFar between
// hosts, if there are several). At a time, one message to its own host and one to other hosts can
// leave a rank. Messages that arrive early wait in a buffer.
class Play {
 public:
  explicit Play(Task task) : hosts_(task.hosts) {
    for (task.rank = 0; task.rank < task.size; ++task.rank) {
      plans_.emplace_back();
      make_plan(task, plans_.back());
      ends_.emplace_back(plans_.back().moves().size(), -1);
    }
    out_free_.resize(plans_.size());
  }

  // Returns the units until all is done.
  int64_t run() {
    for (bool any = true; any;) {
      any = false;
      for (size_t rank = 0; rank < plans_.size(); ++rank) {
        for (size_t i = 0; i < ends_[rank].size(); ++i) any = try_move(rank, i) || any;
      }
    }
    int64_t last = 0;
    for (const auto& ends : ends_) {
      for (const int64_t end : ends) {
        EXPECT_GE(end, 0) << "a plan does not end";
        last = std::max(last, end);
      }
    }
    return last;
  }

 private:
  // Returns when everything this move waits for is ready; -1: not yet.
  int64_t ready(size_t rank, size_t index) const {
    const auto& moves = plans_[rank].moves();
    const auto& ends = ends_[rank];
    int64_t at = 0;
    const auto needs = [&](size_t other) {
      at = at < 0 || ends[other] < 0 ? -1 : std::max(at, ends[other]);
    };
    const Move& move = moves[index];
    if (move.after != Move::kNone) needs(static_cast<size_t>(move.after));
    if (move.starts_after != Move::kNone) needs(static_cast<size_t>(move.starts_after));
    for (size_t other = 0; other < index; ++other) {
      const bool same_lane = moves[other].peer == move.peer && moves[other].kind == move.kind;
      if (move.is_barrier || (same_lane && ends[other] < 0)) needs(other);
    }
    return at;
  }

  bool try_move(size_t rank, size_t index) {
    int64_t& end = ends_[rank][index];
    if (end >= 0) return false;
    int64_t at = ready(rank, index);
    if (at < 0) return false;
    const Move& move = plans_[rank].moves()[index];
    const auto peer = static_cast<size_t>(move.peer);
    if (move.kind == Move::Kind::kSend) {
      int64_t& out_free = out_free_[rank][is_far(rank, peer) ? 1 : 0];
      at = std::max(at, out_free);
      out_free = at + (is_far(rank, peer) ? kFar : 1);
      on_the_way_[{rank, peer}].push_back(out_free);
      end = at;
    } else if (move.kind == Move::Kind::kReceive || move.kind == Move::Kind::kReduce) {
      auto& coming = on_the_way_[{peer, rank}];
      if (coming.empty()) return false;
      end = std::max(at, coming.front());
      coming.pop_front();
    } else {
      end = at;
    }
    return true;
  }

  bool is_far(size_t from, size_t to) const {
    return hosts_ != nullptr && hosts_->host[from] != hosts_->host[to];
  }

  const HostMap* hosts_;
  std::vector<MovePlan> plans_;
  std::vector<std::vector<int64_t>> ends_;
  std::vector<std::array<int64_t, 2>> out_free_;
  std::map<std::pair<size_t, size_t>, std::deque<int64_t>> on_the_way_;
};

template <class Body>
void on_every_case(Body body) {
  for (const Pair& kind : kKinds) {
    for (const auto& [way, algorithm] : kWays) {
      for (int n = 2; n <= 12; ++n) {
        const Task task{.kind = kind.collective,
                        .algorithm = algorithm,
                        .size = n,
                        .count = kCount,
                        .type = DataType::kU8};
        const CollectiveCase what{
            .kind = kind.kind, .algorithm = way, .ranks = n, .block_bytes = double{kCount}};
        body(task, what);
      }
    }
  }
}

std::string name(const CollectiveCase& what) {
  return std::string(name_of(what.kind)) + ", " + std::string(name_of(what.algorithm)) + ", " +
         std::to_string(what.ranks) + " ranks";
}

TEST(CollectiveCost, HasTheWaysThatTheCommunicatorHas) {
  on_every_case([](const Task& task, const CollectiveCase& what) {
    EXPECT_EQ(collective_steps(what).ok(), choose_algorithm(task).ok()) << name(what);
  });
}

TEST(CollectiveCost, CountsTheStepsThatThePlansTake) {
  on_every_case([](const Task& task, const CollectiveCase& what) {
    const auto cost = collective_steps(what);
    if (!cost.ok()) return;
    EXPECT_EQ(static_cast<double>(Play(task).run()), cost->network.steps + cost->network.behind)
        << name(what);
  });
}

TEST(CollectiveCost, CountsTheBytesThatTheBusiestRankSendsOrReceives) {
  on_every_case([](const Task& task, const CollectiveCase& what) {
    CollectiveCase unpipelined = what;
    unpipelined.block_bytes = 1e15;  // so large that a piece counts nothing
    const auto steps = collective_steps(unpipelined);
    if (!steps.ok()) return;
    double most = 0;
    Task at = task;
    for (at.rank = 0; at.rank < at.size; ++at.rank) {
      MovePlan plan;
      make_plan(at, plan);
      double sent = 0;
      double received = 0;
      for (const Move& move : plan.moves()) {
        const auto bytes = static_cast<double>(move.bytes) / double{kCount};
        if (move.kind == Move::Kind::kSend) sent += bytes;
        if (move.kind == Move::Kind::kReceive || move.kind == Move::Kind::kReduce)
          received += bytes;
      }
      most = std::max({most, sent, received});
    }
    // Halving with ranks beyond a power of two has two more phases, which run one after the other.
    const bool paired = what.kind == CollectiveKind::kAllReduce &&
                        what.algorithm == CollectiveAlgorithm::kHalving &&
                        (what.ranks & (what.ranks - 1)) != 0;
    EXPECT_NEAR(steps->network.bytes / 1e15, most + (paired ? 1 : 0), 1e-6) << name(what);
  });
}

// Bytes that leave the busiest host, and the most that a rank sends within its host, in bytes and
// in messages.
struct Left {
  double host = 0;
  double within = 0;
  double messages = 0;
};
Left most_left(Task task) {
  Left most;
  std::vector<double> of_host(static_cast<size_t>(task.hosts->hosts()));
  for (task.rank = 0; task.rank < task.size; ++task.rank) {
    MovePlan plan;
    make_plan(task, plan);
    double within = 0;
    double messages = 0;
    const auto host = [&](int rank) { return task.hosts->host[static_cast<size_t>(rank)]; };
    for (const Move& move : plan.moves()) {
      if (move.kind != Move::Kind::kSend) continue;
      const auto bytes = static_cast<double>(move.bytes) / double{kCount};
      const bool leaves = host(move.peer) != host(task.rank);
      (leaves ? of_host[static_cast<size_t>(host(task.rank))] : within) += bytes;
      messages += leaves ? 0 : 1;
    }
    most.within = std::max(most.within, within);
    most.messages = std::max(most.messages, messages);
  }
  most.host = *std::max_element(of_host.begin(), of_host.end());
  return most;
}

void expect_bytes_by_host(const Pair& kind, CollectiveAlgorithm way, int m, int k) {
  std::vector<int> nodes;
  for (int rank = 0; rank < m * k; ++rank) nodes.push_back(rank / k);
  const HostMap hosts = make_host_map(nodes);
  const bool halves = way == CollectiveAlgorithm::kByHostHalving;
  const Task task{.kind = kind.collective,
                  .algorithm = halves ? Algorithm::kByHostHalving : Algorithm::kByHost,
                  .size = m * k,
                  .count = kCount,
                  .type = DataType::kU8,
                  .hosts = &hosts};
  const CollectiveCase what{
      .kind = kind.kind, .algorithm = way, .ranks = m * k, .block_bytes = 1e15, .hosts = m};
  const auto cost = collective_steps(what);
  ASSERT_EQ(cost.ok(), choose_algorithm(task).ok()) << name(what);
  if (!cost.ok()) return;
  const Left left = most_left(task);
  // Halving with hosts beyond a power of two has two more phases, which run one after the other.
  const bool paired = halves && (m & (m - 1)) != 0;
  EXPECT_NEAR(cost->network.bytes / 1e15, left.host + (paired ? 1 : 0), 1e-6) << name(what);
  EXPECT_NEAR(cost->within.bytes / 1e15, left.within, 1e-6) << name(what);
  const auto steps = [](const CollectiveSteps& of) { return of.steps + of.behind; };
  const int64_t units = Play(task).run();
  EXPECT_EQ(static_cast<double>(units / kFar), steps(cost->network)) << name(what) << " on " << m;
  const bool counts_all =
      kind.kind == CollectiveKind::kReduceScatter || kind.kind == CollectiveKind::kAllGather;
  EXPECT_EQ(counts_all ? left.messages : static_cast<double>(units % kFar), steps(cost->within))
      << name(what) << " on " << m;
}

TEST(CollectiveCost, CountsByHostWhatLeavesAHostAndWhatStaysAndTheSteps) {
  for (const Pair& kind : kKinds) {
    for (const CollectiveAlgorithm way :
         {CollectiveAlgorithm::kByHost, CollectiveAlgorithm::kByHostHalving}) {
      for (const auto& [m, k] : {std::pair<int, int>{2, 2}, {2, 4}, {3, 2}, {4, 3}, {5, 2}}) {
        expect_bytes_by_host(kind, way, m, k);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::comm
