// The algorithms as data: no transport, any number of ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <utility>
#include <vector>

#include "agent/comm/collectives.h"
#include "common/layout/collective_cost.h"
#include "tests/agent/comm/covering.h"

namespace lockstep::comm {
namespace {

constexpr Collective kKinds[] = {
    Collective::kBarrier,   Collective::kBroadcast, Collective::kAllReduce,
    Collective::kAllGather, Collective::kReduce,    Collective::kReduceScatter,
    Collective::kScatter,   Collective::kGather,    Collective::kAllToAll};

std::vector<MovePlan> plans_of(Task task) {
  std::vector<MovePlan> plans(static_cast<size_t>(task.size));
  for (task.rank = 0; task.rank < task.size; ++task.rank) {
    make_plan(task, plans[static_cast<size_t>(task.rank)]);
  }
  return plans;
}

// Bytes that travel from rank to rank, in order.
using PairTraffic = std::map<std::pair<int, int>, std::vector<size_t>>;

bool takes(const Move& move) {
  return move.kind == Move::Kind::kReceive || move.kind == Move::Kind::kReduce;
}

PairTraffic sent(const std::vector<MovePlan>& plans) {
  PairTraffic traffic;
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    for (const Move& move : plans[rank].moves()) {
      if (move.kind != Move::Kind::kSend) continue;
      traffic[{static_cast<int>(rank), move.peer}].push_back(move.bytes);
    }
  }
  return traffic;
}

PairTraffic taken(const std::vector<MovePlan>& plans) {
  PairTraffic traffic;
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    for (const Move& move : plans[rank].moves()) {
      if (takes(move)) traffic[{move.peer, static_cast<int>(rank)}].push_back(move.bytes);
    }
  }
  return traffic;
}

// Layouts of ranks on hosts: all on one, in pairs, round-robin on three, and the first half on one
// host with each other rank alone.
int node_of(int layout, int rank, int size) {
  switch (layout) {
    case 0:
      return 0;
    case 1:
      return rank / 2;
    case 2:
      return rank % 3;
    default:
      return rank < size / 2 ? 0 : rank;
  }
}

HostMap host_map(int layout, int size) {
  std::vector<int> nodes;
  for (int rank = 0; rank < size; ++rank) nodes.push_back(node_of(layout, rank, size));
  return make_host_map(nodes);
}

std::string name(const Task& task) {
  return std::string(name_of(task.kind)) + ", " + name_of(task.algorithm) + ", " +
         std::to_string(task.size) + " ranks, " + std::to_string(task.count);
}

// Algorithms that ignore hosts are tried on the first layout only.
template <class Body>
void on_every_task_of(const HostMap& hosts, int layout, int size, const Body& body) {
  for (const Collective kind : kKinds) {
    for (int algorithm = 1; algorithm < kAlgorithms; ++algorithm) {
      const auto way = static_cast<Algorithm>(algorithm);
      const bool is_by_host = way == Algorithm::kByHost || way == Algorithm::kByHostHalving;
      if (layout > 0 && !is_by_host) continue;
      for (const int64_t count : {0, 1, 31, 1000}) {
        const Task task{.kind = kind,
                        .algorithm = way,
                        .size = size,
                        .root = kind == Collective::kAllReduce ? 0 : size / 2,
                        .count = kind == Collective::kBarrier ? 0 : count,
                        .type = DataType::kF32,
                        .hosts = &hosts};
        const bool has = test::has_algorithm(kind, task.algorithm, hosts.host);
        EXPECT_EQ(choose_algorithm(task).ok(), has) << name(task);
        if (has) body(task);
      }
    }
  }
}

// Calls body(task) for every operation, algorithm, number of ranks, layout and some counts.
template <class Body>
void on_every_task(const Body& body) {
  for (int layout = 0; layout < 4; ++layout) {
    for (int size = 1; size <= 33; ++size) {
      const HostMap hosts = host_map(layout, size);
      on_every_task_of(hosts, layout, size, body);
    }
  }
}

TEST(Plans, EveryRankTakesWhatTheOthersSendItInTheSameOrder) {
  on_every_task([](const Task& task) {
    const auto plans = plans_of(task);
    EXPECT_EQ(sent(plans), taken(plans)) << name(task);
  });
}

TEST(Plans, StayWithinTheMemoryOfTheCall) {
  on_every_task([](const Task& task) {
    const size_t block = static_cast<size_t>(task.count) * 4;
    const size_t all = static_cast<size_t>(task.size) * block;
    for (const MovePlan& plan : plans_of(task)) {
      for (const Move& move : plan.moves()) {
        for (const Place place : {move.from, move.with, move.into}) {
          const size_t room = place.area == Area::kScratch ? plan.scratch() : all;
          const bool unused = place.at == 0 && place.area != Area::kScratch;
          EXPECT_TRUE(unused || place.at + move.bytes <= room) << name(task);
        }
      }
    }
  });
}

uint64_t most_sent(const Task& task) {
  uint64_t most = 0;
  for (const MovePlan& plan : plans_of(task)) {
    uint64_t bytes = 0;
    for (const Move& move : plan.moves()) {
      if (move.kind == Move::Kind::kSend) bytes += move.bytes;
    }
    most = std::max(most, bytes);
  }
  return most;
}

TEST(Plans, TheRingsTrafficStaysBoundedAsRanksAreAddedAndTheOneRootTreesDoesNot) {
  constexpr int64_t kCount = 64 * 1000;
  constexpr uint64_t kBytes = kCount * 4;
  for (const int n : {2, 4, 8, 16, 32, 64}) {
    Task task{.kind = Collective::kAllReduce,
              .algorithm = Algorithm::kRing,
              .size = n,
              .count = kCount,
              .type = DataType::kF32};
    const auto ranks = static_cast<uint64_t>(n);
    EXPECT_EQ(most_sent(task), 2 * (ranks - 1) * kBytes / ranks);
    task.algorithm = Algorithm::kHalving;
    EXPECT_EQ(most_sent(task), 2 * (ranks - 1) * kBytes / ranks);
    task.algorithm = Algorithm::kOneRoot;
    EXPECT_EQ(most_sent(task), (ranks - 1) * kBytes);
    task.algorithm = Algorithm::kTree;
    EXPECT_LE(most_sent(task), 3 * kBytes);
  }
}

size_t longest_move(const std::vector<MovePlan>& plans) {
  size_t longest = 0;
  for (const MovePlan& plan : plans) {
    for (const Move& move : plan.moves()) longest = std::max(longest, move.bytes);
  }
  return longest;
}

TEST(Plans, TheRingInMemoryGoesThroughALargeBlockInChunksAndOverTheNetworkInOne) {
  constexpr size_t kBytes = size_t{24} << 20;
  const HostMap on_one = make_host_map(std::vector<int>{0, 0, 0});
  const HostMap on_three = make_host_map(std::vector<int>{0, 1, 2});
  Task task{.kind = Collective::kAllReduce,
            .algorithm = Algorithm::kRing,
            .size = 3,
            .count = kBytes,
            .type = DataType::kU8,
            .hosts = &on_one};
  const std::vector<MovePlan> chunked = plans_of(task);
  EXPECT_EQ(sent(chunked), taken(chunked));
  EXPECT_LE(longest_move(chunked), kRingSegmentBytes + 1);
  EXPECT_EQ(most_sent(task), kBytes / 3 * 4);
  task.hosts = &on_three;
  EXPECT_EQ(longest_move(plans_of(task)), kBytes / 3);
  EXPECT_EQ(most_sent(task), kBytes / 3 * 4);
}

TEST(Plans, AVeryLargeBlockHasLongerChunksInsteadOfMore) {
  const Task task{.kind = Collective::kAllReduce,
                  .algorithm = Algorithm::kRing,
                  .size = 2,
                  .count = int64_t{1} << 40,
                  .type = DataType::kU8};
  const std::vector<MovePlan> plans = plans_of(task);
  EXPECT_EQ(plans[0].moves().size(), 4 * kRingChunksMax);
  EXPECT_EQ(sent(plans), taken(plans));
}

// A number of hosts with this many ranks each, the cost of a step between hosts, and the model.
struct Cluster {
  int hosts = 1;
  int ranks_of_host = 1;

  int ranks() const { return hosts * ranks_of_host; }
  HostMap map() const {
    std::vector<int> nodes;
    for (int rank = 0; rank < ranks(); ++rank) nodes.push_back(rank / ranks_of_host);
    return make_host_map(nodes);
  }
  Network network() const {
    return {
        .latency_s = static_cast<double>(hosts == 1 ? kStepBytesOnHost : kStepBytesBetweenHosts),
        .bytes_per_s = 1,
        .host_latency_s = kStepBytesOnHost / kHostTimesNetwork,
        .host_bytes_per_s = kHostTimesNetwork};
  }
};

constexpr std::pair<Collective, CollectiveKind> kModelled[] = {
    {Collective::kAllReduce, CollectiveKind::kAllReduce},
    {Collective::kReduce, CollectiveKind::kReduce},
    {Collective::kBroadcast, CollectiveKind::kBroadcast},
    {Collective::kAllGather, CollectiveKind::kAllGather},
    {Collective::kReduceScatter, CollectiveKind::kReduceScatter}};

CollectiveAlgorithm way_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kDirect:
      return CollectiveAlgorithm::kDirect;
    case Algorithm::kRing:
      return CollectiveAlgorithm::kRing;
    case Algorithm::kTree:
      return CollectiveAlgorithm::kTree;
    case Algorithm::kHalving:
      return CollectiveAlgorithm::kHalving;
    case Algorithm::kByHostHalving:
      return CollectiveAlgorithm::kByHostHalving;
    default:
      return CollectiveAlgorithm::kByHost;
  }
}

// Compares the time of the chosen algorithm with the best one's.
void expect_close_to_the_best(const Cluster& cluster, const HostMap& hosts, int64_t bytes) {
  for (const auto& [collective, kind] : kModelled) {
    const Algorithm chosen = choose_algorithm({.kind = collective,
                                               .size = cluster.ranks(),
                                               .count = bytes,
                                               .type = DataType::kU8,
                                               .hosts = &hosts})
                                 .value();
    // Chosen by measurement, not by the model.
    const bool few = cluster.ranks() <= kDirectRanksMax &&
                     (cluster.ranks() - 1) * bytes <= static_cast<int64_t>(kDirectBytesMax);
    if (chosen == Algorithm::kDirect && few) continue;
    CollectiveCase what{.kind = kind,
                        .algorithm = way_of(chosen),
                        .ranks = cluster.ranks(),
                        .block_bytes = static_cast<double>(bytes),
                        .hosts = cluster.hosts};
    const double taken = collective_seconds(what, cluster.network()).value();
    what.algorithm = fastest_algorithm(what, cluster.network());
    EXPECT_LE(taken, collective_seconds(what, cluster.network()).value() * 8 / 7 * 1.0001)
        << name_of(collective) << " of " << bytes << " on " << cluster.hosts << " x "
        << cluster.ranks_of_host << ": " << name_of(chosen) << ", best " << name_of(what.algorithm);
  }
}

TEST(Plans, WhatIsChosenTakesAtMostAnEighthLongerThanTheBestWayByTheModel) {
  for (const int ranks : {2, 3, 4, 5, 7, 8, 9, 12, 16, 31, 64, 100, 512, 1000, 4096}) {
    for (const int of_host : {1, 2, 8, ranks}) {
      if (ranks % of_host != 0) continue;
      const Cluster cluster{.hosts = ranks / of_host, .ranks_of_host = of_host};
      const HostMap hosts = cluster.map();
      for (int64_t bytes = 8; bytes <= 64 << 20; bytes *= 2) {
        expect_close_to_the_best(cluster, hosts, bytes);
      }
    }
  }
}

// Summing the counts again for each rank would take ten thousand million steps.
TEST(Plans, BlocksOfDifferentSizesAreFoundWithoutGoingThroughAllForEach) {
  constexpr int kRanks = 100'000;
  std::vector<int64_t> counts(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) counts[static_cast<size_t>(rank)] = rank % 7;
  const std::clock_t begin = std::clock();  // CPU time: other programs may be running
  MovePlan plan;
  make_plan({.kind = Collective::kAllToAll,
             .algorithm = Algorithm::kDirect,
             .rank = kRanks - 1,
             .size = kRanks,
             .type = DataType::kI32,
             .send_counts = counts,
             .receive_counts = counts},
            plan);
  EXPECT_LT((std::clock() - begin) / CLOCKS_PER_SEC, 2);
  size_t at = 0;
  std::vector<size_t> begins;
  for (const int64_t count : counts) {
    begins.push_back(at);
    at += static_cast<size_t>(count) * sizeof(int32_t);
  }
  int sends = 0;
  for (const Move& move : plan.moves()) {
    if (move.kind != Move::Kind::kSend) continue;
    ++sends;
    const auto peer = static_cast<size_t>(move.peer);
    ASSERT_EQ(move.from.at, begins[peer]);
    ASSERT_EQ(move.bytes, static_cast<size_t>(counts[peer]) * sizeof(int32_t));
  }
  EXPECT_EQ(sends, kRanks - 1);
}

TEST(Plans, SmallOperationsOfFewRanksGoDirectAsMeasured) {
  for (const Cluster& cluster :
       {Cluster{1, 2}, {1, 4}, {1, 8}, {2, 1}, {4, 1}, {8, 1}, {2, 2}, {2, 4}}) {
    const HostMap hosts = cluster.map();
    for (const Collective kind :
         {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter}) {
      EXPECT_EQ(
          choose_algorithm({.kind = kind, .size = cluster.ranks(), .count = 8, .hosts = &hosts})
              .value(),
          Algorithm::kDirect)
          << name_of(kind) << ", " << cluster.hosts << " x " << cluster.ranks_of_host;
    }
  }
}

TEST(Plans, TheChoiceGoesWithSizeRanksAndHosts) {
  const auto chosen = [](Collective kind, const Cluster& cluster, int64_t bytes) {
    const HostMap hosts = cluster.map();
    return choose_algorithm({.kind = kind,
                             .size = cluster.ranks(),
                             .count = bytes,
                             .type = DataType::kU8,
                             .hosts = &hosts})
        .value();
  };
  constexpr int64_t kKiB = 1 << 10;
  constexpr int64_t kMiB = 1 << 20;
  const auto all_reduce = [&](const Cluster& cluster, int64_t bytes) {
    return chosen(Collective::kAllReduce, cluster, bytes);
  };
  EXPECT_EQ(all_reduce({64, 1}, 8), Algorithm::kHalving);
  EXPECT_EQ(all_reduce({4096, 1}, 8), Algorithm::kHalving);
  EXPECT_EQ(all_reduce({64, 1}, kMiB), Algorithm::kHalving);
  EXPECT_EQ(all_reduce({64, 1}, 64 * kMiB), Algorithm::kRing);
  EXPECT_EQ(all_reduce({4096, 1}, 64 * kMiB), Algorithm::kHalving);
  EXPECT_EQ(all_reduce({6, 1}, kMiB), Algorithm::kRing) << "no power of two: more bytes";
  EXPECT_EQ(all_reduce({1, 8}, 64 * kKiB), Algorithm::kHalving);
  EXPECT_EQ(all_reduce({1, 8}, kMiB), Algorithm::kRing);
  EXPECT_EQ(all_reduce({2, 4}, kMiB), Algorithm::kByHost);
  EXPECT_EQ(all_reduce({512, 8}, 8), Algorithm::kByHostHalving) << "a ring of 512 hosts";
  EXPECT_EQ(all_reduce({512, 8}, 16 * kMiB), Algorithm::kByHostHalving) << "and its 1,022 steps";
  EXPECT_EQ(all_reduce({64, 8}, kMiB), Algorithm::kByHostHalving);
  EXPECT_EQ(all_reduce({4, 8}, 64 * kMiB), Algorithm::kByHost);
  EXPECT_EQ(chosen(Collective::kReduceScatter, {64, 1}, 64 * kKiB), Algorithm::kHalving);
  EXPECT_EQ(chosen(Collective::kAllGather, {63, 1}, 64 * kKiB), Algorithm::kDirect);
  EXPECT_EQ(chosen(Collective::kAllGather, {63, 1}, kMiB), Algorithm::kRing);
  EXPECT_EQ(chosen(Collective::kBroadcast, {64, 1}, 40 * kKiB), Algorithm::kTree);
  EXPECT_EQ(chosen(Collective::kBroadcast, {512, 1}, kMiB), Algorithm::kTree);
  EXPECT_EQ(chosen(Collective::kReduce, {4, 1}, 64 * kMiB), Algorithm::kRing);
}

TEST(Plans, TheChoiceDependsOnSizeAndRanksAndRefusesWhatAnOperationDoesNotHave) {
  const auto chosen = [](Collective kind, int size, int64_t bytes) {
    const auto algorithm =
        choose_algorithm({.kind = kind, .size = size, .count = bytes, .type = DataType::kU8});
    EXPECT_TRUE(algorithm.ok());
    return *algorithm;
  };
  EXPECT_EQ(chosen(Collective::kAllReduce, 2, 32768), Algorithm::kDirect);
  EXPECT_EQ(chosen(Collective::kAllReduce, 2, 49152), Algorithm::kRing);
  EXPECT_EQ(chosen(Collective::kAllReduce, 5, 32768), Algorithm::kRing);
  EXPECT_EQ(chosen(Collective::kBroadcast, 4, 4096), Algorithm::kTree);
  EXPECT_EQ(chosen(Collective::kAllGather, 2, (1 << 20) + 1), Algorithm::kRing);
  EXPECT_EQ(chosen(Collective::kBarrier, 9, 0), Algorithm::kHalving);
  const auto refused = choose_algorithm(
      {.kind = Collective::kAllGather, .algorithm = Algorithm::kHalving, .size = 6});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(
      refused.error().message,
      "[comm] all_gather of 6 ranks has no algorithm 'halving' (it needs a power of two ranks); "
      "available: auto, direct, ring");
}

}  // namespace
}  // namespace lockstep::comm
