// The algorithms as data: no transport, any number of ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "agent/comm/collectives.h"
#include "tests/agent/comm/covering.h"

namespace lockstep {
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

// What travels from rank to rank, in its order.
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

// How ranks lie on hosts: all on one, in pairs, in turns on three, and the first half on one host
// and each of the others alone.
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

// The algorithms that don't look at hosts are tried on the first layout alone.
template <class Body>
void on_every_task_of(const HostMap& hosts, int layout, int size, const Body& body) {
  for (const Collective kind : kKinds) {
    for (int algorithm = 1; algorithm < kAlgorithms; ++algorithm) {
      if (layout > 0 && static_cast<Algorithm>(algorithm) != Algorithm::kByHost) continue;
      for (const int64_t count : {0, 1, 31, 1000}) {
        const Task task{.kind = kind,
                        .algorithm = static_cast<Algorithm>(algorithm),
                        .size = size,
                        .root = kind == Collective::kAllReduce ? 0 : size / 2,
                        .count = kind == Collective::kBarrier ? 0 : count,
                        .type = DataType::kF32,
                        .hosts = &hosts};
        const bool has = test::has_way(kind, task.algorithm, hosts.host);
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

TEST(Plans, HalvingIsChosenWhereItsFewerStepsSaveAnEighthOfTheRingsTime) {
  const auto chosen = [](Collective kind, int ranks, bool on_one_host, int64_t bytes) {
    std::vector<int> nodes(static_cast<size_t>(ranks), 0);
    if (!on_one_host) std::iota(nodes.begin(), nodes.end(), 0);
    const HostMap hosts = make_host_map(nodes);
    return choose_algorithm({.kind = kind,
                             .size = ranks,
                             .count = bytes,
                             .type = DataType::kU8,
                             .hosts = &hosts})
        .value();
  };
  constexpr int64_t kMiB = 1 << 20;
  EXPECT_EQ(chosen(Collective::kAllReduce, 64, false, kMiB), Algorithm::kHalving);
  EXPECT_EQ(chosen(Collective::kAllReduce, 64, false, 64 * kMiB), Algorithm::kRing);
  EXPECT_EQ(chosen(Collective::kAllReduce, 4096, false, 64 * kMiB), Algorithm::kHalving);
  EXPECT_EQ(chosen(Collective::kAllReduce, 6, false, kMiB), Algorithm::kRing)
      << "no power of two: more bytes";
  EXPECT_EQ(chosen(Collective::kAllReduce, 8, true, 64 << 10), Algorithm::kHalving);
  EXPECT_EQ(chosen(Collective::kAllReduce, 8, true, kMiB), Algorithm::kRing);
  EXPECT_EQ(chosen(Collective::kReduceScatter, 64, false, 64 << 10), Algorithm::kHalving);
  EXPECT_EQ(chosen(Collective::kAllGather, 63, false, 64 << 10), Algorithm::kRing);
}

TEST(Plans, TheChoiceDependsOnSizeAndRanksAndRefusesWhatAnOperationDoesNotHave) {
  const auto chosen = [](Collective kind, int size, int64_t bytes) {
    const auto algorithm =
        choose_algorithm({.kind = kind, .size = size, .count = bytes, .type = DataType::kU8});
    EXPECT_TRUE(algorithm.ok());
    return *algorithm;
  };
  EXPECT_EQ(chosen(Collective::kAllReduce, 2, 32768), Algorithm::kDirect);
  EXPECT_EQ(chosen(Collective::kAllReduce, 2, 32769), Algorithm::kRing);
  EXPECT_EQ(chosen(Collective::kAllReduce, 5, 8193), Algorithm::kRing);
  EXPECT_EQ(chosen(Collective::kBroadcast, 4, 32768), Algorithm::kTree);
  EXPECT_EQ(chosen(Collective::kAllGather, 2, (1 << 20) + 1), Algorithm::kRing);
  EXPECT_EQ(chosen(Collective::kBarrier, 9, 0), Algorithm::kHalving);
  const auto refused = choose_algorithm(
      {.kind = Collective::kAllGather, .algorithm = Algorithm::kHalving, .size = 6});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "[comm] all_gather of 6 ranks has no algorithm 'halving' (it is for powers of two); "
            "it has: auto, direct, ring");
}

}  // namespace
}  // namespace lockstep
