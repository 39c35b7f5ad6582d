// By-host algorithms: results on layouts of every kind, and the bytes that leave a host.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "agent/comm/collectives.h"
#include "agent/comm/network.h"
#include "agent/comm/topology.h"
#include "common/base/random.h"
#include "tests/agent/comm/values.h"
#include "tests/agent/comm/worlds.h"

namespace lockstep::comm {
namespace {

using test::make_world;
using test::on_all;
using test::Transport;
using test::World;

constexpr Collective kKinds[] = {Collective::kAllReduce, Collective::kReduce,
                                 Collective::kBroadcast, Collective::kAllGather,
                                 Collective::kReduceScatter};
constexpr std::pair<Collective, Algorithm> kByHostWays[] = {
    {Collective::kAllReduce, Algorithm::kByHost},
    {Collective::kAllReduce, Algorithm::kByHostHalving},
    {Collective::kReduce, Algorithm::kByHost},
    {Collective::kBroadcast, Algorithm::kByHost},
    {Collective::kAllGather, Algorithm::kByHost},
    {Collective::kReduceScatter, Algorithm::kByHost}};

World thread_world(const std::vector<int>& nodes) {
  auto world = make_thread_world(static_cast<int>(nodes.size()), std::chrono::seconds(60), nodes);
  EXPECT_TRUE(world.ok());
  return std::move(*world);
}

std::string text_of(const std::vector<int>& nodes) {
  std::string text;
  for (const int node : nodes) text += std::to_string(node) + " ";
  return text;
}

struct Case {
  Collective kind = Collective::kAllReduce;
  Algorithm algorithm = Algorithm::kByHost;
  ReduceOp op = ReduceOp::kSum;
  DataType type = DataType::kF32;
  int64_t count = 0;
  int root = 0;
  bool in_place = false;
  uint64_t seed = 0;
};

bool takes_all(Collective kind) {
  return kind == Collective::kReduceScatter;
}
bool gives_all(Collective kind) {
  return kind == Collective::kAllGather;
}

test::Value expected(const Case& c, int rank, int n, int64_t index) {
  const auto given = [&](int from, int64_t at) {
    return test::draw(c.type, c.op,
                      {.seed = c.seed, .rank = from, .index = static_cast<size_t>(at)});
  };
  if (c.kind == Collective::kBroadcast) return given(c.root, index);
  if (gives_all(c.kind)) return given(static_cast<int>(index / c.count), index % c.count);
  std::vector<test::Value> values;
  for (int from = 0; from < n; ++from) {
    values.push_back(given(from, takes_all(c.kind) ? rank * c.count + index : index));
  }
  return test::reduced(c.type, c.op, values);
}

void run_rank(const Case& c, Communicator& comm) {
  const int n = comm.size();
  const size_t element = data_type_bytes(c.type);
  const int64_t in = c.count * (takes_all(c.kind) ? n : 1);
  const int64_t out = c.count * (gives_all(c.kind) ? n : 1);
  const auto own = static_cast<size_t>(comm.rank() * c.count) * element;
  std::vector<std::byte> output(static_cast<size_t>(std::max(in, out)) * element + 1);
  std::vector<std::byte> input(static_cast<size_t>(in) * element + 1);
  std::byte* from = input.data();
  std::byte* result = output.data();
  if (c.in_place) {
    from = output.data() + (gives_all(c.kind) ? own : 0);
    result += takes_all(c.kind) ? own : 0;
  }
  const bool gives = c.kind != Collective::kBroadcast || comm.rank() == c.root;
  for (int64_t i = 0; gives && i < in; ++i) {
    const auto at = static_cast<size_t>(i);
    test::store(c.type, from, at,
                test::draw(c.type, c.op, {.seed = c.seed, .rank = comm.rank(), .index = at}));
  }
  const Status status = comm.run({.kind = c.kind,
                                  .buffer = {.data = output.data(),
                                             .count = c.count,
                                             .type = c.type,
                                             .input = c.in_place ? nullptr : input.data()},
                                  .op = c.op,
                                  .rank = c.root,
                                  .algorithm = c.algorithm});
  ASSERT_TRUE(status.ok()) << status.error().message;
  if (c.kind == Collective::kReduce && comm.rank() != c.root) return;
  for (int64_t i = 0; i < out; ++i) {
    ASSERT_EQ(test::load(c.type, result, static_cast<size_t>(i)), expected(c, comm.rank(), n, i))
        << name_of(c.kind) << ", " << name_of(c.algorithm) << ", rank " << comm.rank() << " of "
        << n << " at " << i << ", seed " << c.seed;
  }
}

TEST(ByHost, GivesWhatAPlainLoopGivesOnAnyLayout) {
  constexpr uint64_t kSeed = 22;
  Random random(kSeed);
  int layouts_with_two_levels = 0;
  for (int layout = 0; layout < 24; ++layout) {
    const int size = 3 + static_cast<int>(random.below(6));
    const uint64_t hosts = 2 + random.below(static_cast<uint64_t>(size) - 2);
    std::vector<int> nodes(static_cast<size_t>(size));
    for (int& node : nodes) node = static_cast<int>(random.below(hosts));
    if (!make_host_map(nodes).has_two_levels()) continue;
    ++layouts_with_two_levels;
    SCOPED_TRACE("seed " + std::to_string(kSeed) + ", layout " + text_of(nodes));
    World world = thread_world(nodes);
    for (const auto& [kind, algorithm] : kByHostWays) {
      const Case c{.kind = kind,
                   .algorithm = algorithm,
                   .op = static_cast<ReduceOp>(random.below(kReduceOps)),
                   .type = static_cast<DataType>(random.below(kDataTypes)),
                   .count = static_cast<int64_t>(random.below(3) == 0 ? random.below(4)
                                                                      : random.below(20'000)),
                   .root = static_cast<int>(random.below(static_cast<uint64_t>(size))),
                   .in_place = random.below(2) == 0,
                   .seed = random.next_u64()};
      on_all(world, [&](Communicator& comm) { run_rank(c, comm); });
      if (HasFailure()) return;
    }
  }
  EXPECT_GE(layouts_with_two_levels, 12);
}

TEST(ByHost, SumsAreTheSameBitsOnEveryRankAndInEveryRun) {
  constexpr int64_t kCount = 20'011;
  const auto expect_same_bits = [](const std::vector<int>& nodes, Algorithm algorithm) {
    World world = thread_world(nodes);
    std::vector<float> first;
    for (int turn = 0; turn < 3; ++turn) {
      std::vector<std::vector<float>> results(world.size());
      on_all(world, [&](Communicator& comm) {
        Random random(7, static_cast<uint64_t>(comm.rank()));
        std::vector<float> values(kCount);
        for (float& value : values) value = random.normal();
        ASSERT_TRUE(comm.all_reduce({.data = values.data(), .count = kCount}, ReduceOp::kSum,
                                    {.algorithm = algorithm})
                        .ok());
        results[static_cast<size_t>(comm.rank())] = std::move(values);
      });
      if (turn == 0) first = results[0];
      for (const auto& values : results) {
        ASSERT_EQ(std::memcmp(values.data(), first.data(), kCount * sizeof(float)), 0)
            << text_of(nodes);
      }
    }
  };
  for (const std::vector<int>& nodes : {std::vector<int>{0, 0, 1, 1}, {0, 1, 0, 2, 1, 0, 2}}) {
    expect_same_bits(nodes, Algorithm::kByHost);
    expect_same_bits(nodes, Algorithm::kByHostHalving);
  }
}

// Returns what leaves each host, in blocks of `count` elements.
std::vector<double> leaves_hosts(World& world, Collective kind, Algorithm algorithm) {
  constexpr int64_t kCount = 840 * 32;
  std::vector<double> blocks(static_cast<size_t>(world[0]->hosts().hosts()));
  std::vector<uint64_t> sent(world.size());
  on_all(world, [&](Communicator& comm) {
    const auto all = static_cast<size_t>(comm.size()) * kCount;
    std::vector<float> input(all);
    std::vector<float> output(all);
    const uint64_t before = comm.traffic().bytes_sent_to_other_hosts;
    const Status status =
        comm.run({.kind = kind,
                  .buffer = {.data = output.data(), .count = kCount, .input = input.data()},
                  .algorithm = algorithm});
    ASSERT_TRUE(status.ok()) << status.error().message;
    sent[static_cast<size_t>(comm.rank())] = comm.traffic().bytes_sent_to_other_hosts - before;
  });
  for (size_t rank = 0; rank < world.size(); ++rank) {
    const auto host = static_cast<size_t>(world[0]->hosts().host[rank]);
    blocks[host] += static_cast<double>(sent[rank]) / (kCount * sizeof(float));
  }
  return blocks;
}

TEST(ByHost, TheBytesThatLeaveAHostAreThoseOfTheTable) {
  struct Promise {
    Collective kind;
    Algorithm algorithm;
    double (*times_s)(double m, double k);
  };
  const Promise promises[] = {
      {Collective::kAllReduce, Algorithm::kByHost,
       [](double m, double) { return 2 * (m - 1) / m; }},
      {Collective::kAllReduce, Algorithm::kByHostHalving,
       [](double m, double) { return m == 3 ? 2.0 : 2 * (m - 1) / m; }},
      {Collective::kAllReduce, Algorithm::kRing,
       [](double m, double k) { return 2 * (m * k - 1) / (m * k); }},
      {Collective::kAllReduce, Algorithm::kDirect,
       [](double m, double k) { return k * (m - 1) * k; }},
      {Collective::kReduce, Algorithm::kByHost, [](double, double) { return 1.0; }},
      {Collective::kBroadcast, Algorithm::kByHost, [](double, double) { return 1.0; }},
      {Collective::kAllGather, Algorithm::kByHost, [](double m, double k) { return (m - 1) * k; }},
      {Collective::kAllGather, Algorithm::kRing, [](double m, double k) { return m * k - 1; }},
      {Collective::kReduceScatter, Algorithm::kByHost,
       [](double m, double k) { return (m - 1) * k; }},
      {Collective::kReduceScatter, Algorithm::kDirect,
       [](double m, double k) { return k * (m - 1) * k; }},
  };
  for (const auto& [m, k] : {std::pair<int, int>{2, 2}, {2, 4}, {3, 2}, {4, 2}}) {
    std::vector<int> nodes;
    for (int rank = 0; rank < m * k; ++rank) nodes.push_back(rank / k);
    World world = thread_world(nodes);
    for (const Promise& promise : promises) {
      const std::vector<double> left = leaves_hosts(world, promise.kind, promise.algorithm);
      EXPECT_DOUBLE_EQ(*std::max_element(left.begin(), left.end()), promise.times_s(m, k))
          << name_of(promise.kind) << ", " << name_of(promise.algorithm) << ", " << m << " x " << k;
    }
  }
}

TEST(ByHost, IsWhatLargeOperationsTakeBetweenHostsOfSeveralRanks) {
  World world = make_world(Transport::kMixed, 4);
  for (const Collective kind : kKinds) {
    const auto automatic = leaves_hosts(world, kind, Algorithm::kAuto);
    EXPECT_EQ(automatic, leaves_hosts(world, kind, Algorithm::kByHost)) << name_of(kind);
  }
  // Ranks 0 and 2 are on different hosts.
  on_all(world, [](Communicator& comm) {
    if (comm.rank() % 2 != 0) return;
    auto across = comm.sub_group({0, 2});
    ASSERT_TRUE(across.ok());
    EXPECT_FALSE((*across)->hosts().has_two_levels());
    float value = 1;
    const Status status = (*across)->all_reduce({.data = &value, .count = 1}, ReduceOp::kSum,
                                                {.algorithm = Algorithm::kByHost});
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(
        status.error().message,
        "[comm] all_reduce of 2 ranks has no algorithm 'by-host' (it needs several hosts, "
        "at least one of them with several ranks); available: auto, direct, ring, halving, tree, "
        "one-root");
  });
}

TEST(Topology, NamesTheBackendOfEachPairTheHostsAndThePathsBetweenThem) {
  World world = make_world(Transport::kMixed, 3);
  std::vector<std::string> tables(world.size());
  on_all(world, [&](Communicator& comm) {
    const Result<std::string> table = topology_table(comm);
    ASSERT_TRUE(table.ok()) << table.error().message;
    tables[static_cast<size_t>(comm.rank())] = *table;
  });
  EXPECT_EQ(tables[0].find("        to 0    to 1    to 2    \n"
                           "rank 0  -       SHM     TCP     \n"
                           "rank 1  SHM     -       TCP     \n"
                           "rank 2  TCP     TCP     -       \n"
                           "host 0: ranks 0-1, " +
                           world[0]->path_to(1) + "; RDMA devices: "),
            0U)
      << tables[0];
  EXPECT_NE(tables[0].find("host 0 to host 1: tcp 127.0.0.2 to 127.0.0.1 (lo)"), std::string::npos)
      << tables[0];
  EXPECT_EQ(tables[1], tables[0]);
  const std::string devices = rdma_devices();
  const std::string rdma =
      "; RDMA devices here: " + (devices.empty() ? "none" : devices + " (used only by NCCL)");
  EXPECT_EQ(topology_summary(*world[0]), "3 ranks on 2 hosts: " + world[0]->path_to(1) +
                                             " within, " + world[0]->path_to(2) + " between" +
                                             rdma);
  EXPECT_EQ(topology_summary(*make_world(Transport::kThreads, 1)[0]), "1 rank on 1 host" + rdma);
}

}  // namespace
}  // namespace lockstep::comm
