// Every operation against a plain loop, with every algorithm: a covering array, in which each value
// of each factor meets each value of each other one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "agent/comm/collectives.h"
#include "common/base/random.h"
#include "tests/agent/comm/cases.h"
#include "tests/agent/comm/covering.h"
#include "tests/agent/comm/small_frames.h"
#include "tests/agent/comm/worlds.h"

namespace lockstep::comm {
namespace {

using std::chrono::seconds;
using test::Case;
using test::make_world;
using test::on_all;
using test::Transport;
using test::World;

constexpr Collective kKinds[] = {Collective::kBarrier,   Collective::kBroadcast,
                                 Collective::kAllReduce, Collective::kAllGather,
                                 Collective::kReduce,    Collective::kReduceScatter,
                                 Collective::kScatter,   Collective::kGather,
                                 Collective::kAllToAll,  Collective::kSend};

// Tries each algorithm that the operation does not have on these nodes, by name; then one that it
// has.
void expect_refusals(Communicator& comm, const std::vector<int>& nodes) {
  std::vector<float> input(8, 1.f);
  std::vector<float> output(8);
  for (const Collective kind : kKinds) {
    for (int i = 0; i < kAlgorithms; ++i) {
      const auto algorithm = static_cast<Algorithm>(i);
      if (test::has_algorithm(kind, algorithm, nodes)) continue;
      if (kind == Collective::kSend && comm.size() == 1) continue;  // there is no peer to send to
      Call call{.kind = kind, .rank = (comm.rank() + 1) % comm.size(), .algorithm = algorithm};
      if (kind != Collective::kBarrier) {
        call.buffer = {.data = output.data(), .count = 1, .input = input.data()};
      }
      const Status status = comm.run(call);
      const std::string what = std::string(name_of(kind)) + " " + name_of(algorithm) + ", " +
                               std::to_string(comm.size()) + " ranks";
      ASSERT_FALSE(status.ok()) << what;
      EXPECT_EQ(status.error().code, Code::kInvalid) << what << ": " << status.error().message;
      EXPECT_EQ(status.error().blame, Blame::kUnknown) << what;
      EXPECT_NE(status.error().message.find("has no algorithm '" + std::string(name_of(algorithm))),
                std::string::npos)
          << status.error().message;
    }
  }
  EXPECT_TRUE(comm.barrier().ok());
}

const test::TestSetup kAllTransports{
    .transports = {Transport::kThreads, Transport::kShared, Transport::kTcp, Transport::kMixed}};

TEST(Operations, EveryPairOfFactorsThatThereCanBeGivesWhatAPlainLoopGives) {
  constexpr uint64_t kSeed = 20261121;
  std::map<std::tuple<Transport, int, test::Limits>, std::vector<Case>> by_world;
  const std::vector<Case> cases = test::covering_array(kAllTransports, kSeed);
  std::printf("%zu cases of seed %llu\n", cases.size(), static_cast<unsigned long long>(kSeed));
  for (const Case& c : cases) {
    by_world[{c.transport, c.shape.world, c.limits}].push_back(c);
  }
  std::vector<Case> ran;
  for (const auto& [key, of_world] : by_world) {
    const auto& [transport, size, limits] = key;
    World world = make_world(transport, size, seconds(60), limits);
    for (const Case& c : of_world) {
      on_all(world, [&](Communicator& comm) { test::run_case(c, comm); });
      if (HasFailure()) return;
      ran.push_back(c);
    }
  }
  EXPECT_EQ(test::missing_pairs(kAllTransports, ran), std::vector<std::string>{});
}

// Returns the most bytes that go from one rank to another.
size_t longest_lane(const Case& c, const HostMap& hosts) {
  size_t longest = 0;
  for (int rank = 0; rank < c.shape.size(); ++rank) {
    MovePlan plan;
    make_plan({.kind = c.kind,
               .algorithm = c.algorithm,
               .rank = rank,
               .size = c.shape.size(),
               .root = c.kind == Collective::kSend ? (rank + 1) % c.shape.size() : c.root,
               .count = c.count,
               .type = c.type,
               .op = c.op,
               .in_place = c.in_place,
               .hosts = &hosts},
              plan);
    for (const Lane& lane : plan.lanes()) {
      if (lane.direction == Lane::Direction::kOut) longest = std::max(longest, lane.bytes);
    }
  }
  return longest;
}

constexpr test::Limits kSmallFramesAndLoans{.has_small_frames = true, .lends = true};

// Returns each algorithm of each operation that moves anything, in-place and not, each with another
// type, reduction and root.
std::vector<Case> large_cases(Transport transport, int size) {
  const test::Shape shape{.world = size};
  const auto nodes = test::nodes_of(shape, test::hosts_of(transport, size));
  std::vector<Case> cases;
  for (const Collective kind : kKinds) {
    for (int i = 0; i < kAlgorithms; ++i) {
      const auto algorithm = static_cast<Algorithm>(i);
      if (kind == Collective::kBarrier || algorithm == Algorithm::kAuto) continue;
      if (!test::has_algorithm(kind, algorithm, nodes)) continue;
      for (const bool in_place : {false, true}) {
        const size_t turn = cases.size();
        const auto type = static_cast<DataType>(turn % kDataTypes);
        cases.push_back({.kind = kind,
                         .op = static_cast<ReduceOp>(turn % kReduceOps),
                         .type = type,
                         .shape = shape,
                         .count = static_cast<int64_t>(131'112 / data_type_bytes(type)),
                         .algorithm = algorithm,
                         .transport = transport,
                         .in_place = in_place,
                         .root = static_cast<int>(turn % 2),
                         .runs_concurrent_group = turn % 3 == 0,
                         .limits = kSmallFramesAndLoans,
                         .seed = turn});
      }
    }
  }
  return cases;
}

TEST(Operations, EveryWayThatThereIsGoesPastTheWindowAndGivesWhatAPlainLoopGives) {
  std::set<std::pair<Collective, Algorithm>> seen;
  for (const Transport transport : kAllTransports.transports) {
    for (const int size : {4, 5}) {
      World world = make_world(transport, size, seconds(60), kSmallFramesAndLoans);
      for (const Case& c : large_cases(transport, size)) {
        ASSERT_GT(longest_lane(c, world[0]->hosts()), test::kSmallFrames.window_bytes)
            << describe(c);
        on_all(world, [&](Communicator& comm) { test::run_case(c, comm); });
        if (HasFailure()) return;
        seen.insert({c.kind, c.algorithm});
      }
    }
  }
  // All except the two of a barrier.
  std::set<std::pair<Collective, Algorithm>> ran;
  for (const Case& c : test::covering_array(kAllTransports, 1)) {
    if (c.kind == Collective::kBarrier || c.algorithm == Algorithm::kAuto) continue;
    ran.insert({c.kind, c.algorithm});
  }
  EXPECT_EQ(seen, ran);
}

TEST(Operations, TheWholeProductHasEveryPair) {
  const test::TestSetup setup{.transports = {Transport::kMixed}, .block_bytes_max = 13};
  const test::Product product(setup);
  std::vector<Case> all;
  for (uint64_t i = 0; i < product.size(); ++i) all.push_back(product.at(i, 1));
  std::printf("%zu cases\n", all.size());
  EXPECT_EQ(test::missing_pairs(setup, all), std::vector<std::string>{});
  const auto described = [](const Case& c) { return describe(c); };
  std::set<std::string> different;
  std::transform(all.begin(), all.end(), std::inserter(different, different.end()), described);
  EXPECT_EQ(different.size(), all.size());
}

// The covering array runs everything that it considers possible; this test tries the rest.
TEST(Operations, RefuseEveryWayThatTheyDoNotHaveAndGoOn) {
  for (const test::Shape& shape : test::shapes()) {
    if (!shape.ranks.empty()) continue;
    for (const Transport transport : {Transport::kThreads, Transport::kMixed}) {
      World world = make_world(transport, shape.world);
      const auto nodes = test::nodes_of(shape, test::hosts_of(transport, shape.world));
      on_all(world, [&](Communicator& comm) { expect_refusals(comm, nodes); });
      if (HasFailure()) return;
    }
  }
}

TEST(Operations, ReductionsOfAnyNumbersAreTheSameBitsOnEveryRankAndInEveryRun) {
  constexpr int64_t kCount = 20'011;
  for (const int size : {2, 3, 5, 8}) {
    World world = make_world(Transport::kThreads, size);
    for (int algorithm = 1; algorithm < kAlgorithms; ++algorithm) {
      const Task task{.kind = Collective::kAllReduce,
                      .algorithm = static_cast<Algorithm>(algorithm),
                      .size = size};
      if (!choose_algorithm(task).ok()) continue;
      std::vector<std::vector<float>> first;
      for (int turn = 0; turn < 2; ++turn) {
        std::vector<std::vector<float>> results(world.size());
        on_all(world, [&](Communicator& comm) {
          Random random(7, static_cast<uint64_t>(comm.rank()));
          std::vector<float> values(kCount);
          for (float& value : values) value = random.normal();
          const CommBuffer buffer{.data = values.data(), .count = kCount};
          const auto options = CallOptions{.algorithm = static_cast<Algorithm>(algorithm)};
          ASSERT_TRUE(comm.all_reduce(buffer, ReduceOp::kAvg, options).ok());
          results[static_cast<size_t>(comm.rank())] = std::move(values);
        });
        for (const auto& values : results) {
          ASSERT_EQ(std::memcmp(values.data(), results[0].data(), kCount * sizeof(float)), 0);
        }
        if (turn == 0) first = results;
        ASSERT_EQ(first, results) << size << " ranks, algorithm " << algorithm;
      }
    }
  }
}

// The most bytes that a rank sends, for a block of S bytes: the table of collectives.h.
struct Promise {
  Collective kind;
  Algorithm algorithm;
  double (*times_s)(double n);
};

TEST(Operations, SendTheBytesOfTheTable) {
  const std::vector<Promise> promises = {
      {Collective::kAllReduce, Algorithm::kRing, [](double n) { return 2 * (n - 1) / n; }},
      {Collective::kAllReduce, Algorithm::kHalving, [](double n) { return 2 * (n - 1) / n; }},
      {Collective::kAllReduce, Algorithm::kDirect, [](double n) { return n - 1; }},
      {Collective::kAllReduce, Algorithm::kOneRoot, [](double n) { return n - 1; }},
      {Collective::kAllReduce, Algorithm::kTree,
       [](double n) { return n < 3   ? 1.0
                             : n < 5 ? 2.0
                                     : 3.0; }},
      {Collective::kReduceScatter, Algorithm::kRing, [](double n) { return n - 1; }},
      {Collective::kReduceScatter, Algorithm::kHalving, [](double n) { return n - 1; }},
      {Collective::kAllGather, Algorithm::kRing, [](double n) { return n - 1; }},
      {Collective::kBroadcast, Algorithm::kRing, [](double) { return 1.0; }},
      {Collective::kBroadcast, Algorithm::kTree, [](double n) { return n < 3 ? 1.0 : 2.0; }},
      {Collective::kReduce, Algorithm::kRing, [](double) { return 1.0; }},
  };
  constexpr int64_t kCount = 840 * 32;
  for (const int size : {2, 4, 8}) {
    for (const Transport transport : {Transport::kThreads, Transport::kTcp}) {
      World world = make_world(transport, size);
      for (const Promise& promise : promises) {
        std::vector<uint64_t> sent(world.size());
        on_all(world, [&](Communicator& comm) {
          const auto blocks = static_cast<size_t>(comm.size()) + 1;
          std::vector<float> input(blocks * kCount);
          std::vector<float> output(blocks * kCount);
          const uint64_t before = comm.traffic().bytes_sent;
          ASSERT_TRUE(
              comm.run({.kind = promise.kind,
                        .buffer = {.data = output.data(), .count = kCount, .input = input.data()},
                        .algorithm = promise.algorithm})
                  .ok());
          sent[static_cast<size_t>(comm.rank())] = comm.traffic().bytes_sent - before;
        });
        const double most = static_cast<double>(*std::max_element(sent.begin(), sent.end()));
        EXPECT_DOUBLE_EQ(most / (kCount * sizeof(float)), promise.times_s(size))
            << name_of(promise.kind) << ", " << name_of(promise.algorithm) << ", " << size;
      }
    }
  }
}

TEST(Operations, BlocksOfDifferentSizesGoToEveryRank) {
  for (const Transport transport : {Transport::kThreads, Transport::kMixed}) {
    World world = make_world(transport, 5);
    on_all(world, [](Communicator& comm) {
      // Rank a sends 1000 a + b elements to rank b, but rank 2 sends nothing.
      const auto elements = [](int a, int b) { return a == 2 ? int64_t{0} : 1000 * a + b; };
      std::vector<int64_t> send_counts;
      std::vector<int64_t> receive_counts;
      std::vector<int32_t> input;
      std::vector<int32_t> wanted;
      for (int other = 0; other < comm.size(); ++other) {
        send_counts.push_back(elements(comm.rank(), other));
        receive_counts.push_back(elements(other, comm.rank()));
        input.insert(input.end(), static_cast<size_t>(send_counts.back()),
                     comm.rank() * 10 + other);
        wanted.insert(wanted.end(), static_cast<size_t>(receive_counts.back()),
                      other * 10 + comm.rank());
      }
      input.push_back(0);
      std::vector<int32_t> output(wanted.size() + 1, -1);
      wanted.push_back(-1);
      const Status status = comm.run(
          {.kind = Collective::kAllToAll,
           .buffer = {.data = output.data(), .type = DataType::kI32, .input = input.data()},
           .send_counts = send_counts,
           .receive_counts = receive_counts});
      ASSERT_TRUE(status.ok()) << status.error().message;
      EXPECT_EQ(output, wanted);
    });
  }
}

}  // namespace
}  // namespace lockstep::comm
