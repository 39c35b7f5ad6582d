// Worker processes that train on servers over sockets. A sequential program that goes through the
// servers' history sees the same bits in every pull, and the history shows what consistency
// promises.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <thread>

#include "common/base/random.h"
#include "tests/agent/rpc/cutting_proxy.h"
#include "tests/agent/server/history.h"
#include "tests/agent/server/servers.h"

namespace lockstep::server {
namespace {

using optim::OptimizerKind;
using test::KeptEvent;
using test::KeptHistory;
using test::Servers;
using test::Worker;
using test::WorkerProcess;

constexpr uint64_t kSteps = 60;
constexpr uint32_t kDim = 5;

Catalog catalog() {
  return {
      .tensors = {{.name = "w",
                   .count = 300,
                   .optimizer = {.kind = OptimizerKind::kSgd, .momentum = 0.9}}},
      .tables = {
          {.name = "user",
           .dim = kDim,
           .deviation = 0.1f,
           .optimizer = {.kind = OptimizerKind::kAdamW},
           .life = {.idle_max = 8, .frequency_min = 4, .half_life = 5, .decay = 0.01}},
          {.name = "weights", .dim = 1, .optimizer = {.kind = OptimizerKind::kFtrl, .l1 = 0.01}}}};
}

// One worker's steps: it pulls a few rows and the tensor, and pushes gradients that depend on what
// it got, as in training.
class Trainer {
 public:
  Trainer(const Servers& servers, uint32_t rank) : Trainer(servers, rank, servers.addresses()) {}
  Trainer(const Servers& servers, uint32_t rank, std::vector<rpc::Client::ServerAddress> addresses)
      : worker_(servers, rank, servers.view(), std::move(addresses)), random_(77, rank) {}

  Status step(uint64_t clock) {
    const std::vector<uint64_t> keys = draw_keys();
    std::vector<float> user(keys.size() * kDim), weights(keys.size()), tensor(300);
    ParameterClient& client = *worker_.parameters;
    using RowsPull = ParameterClient::RowsPull;
    Transfer pulls[] = {
        client.pull(RowsPull{.table = 0, .keys = keys, .clock = clock, .into = user}),
        client.pull(RowsPull{.table = 1, .keys = keys, .clock = clock, .into = weights}),
        client.pull(ParameterClient::TensorPull{.tensor = 0, .clock = clock, .into = tensor})};
    for (Transfer& pull : pulls) TRY(pull.wait());
    for (std::vector<float>* const values : {&user, &weights, &tensor}) {
      for (float& value : *values) value = 0.3f * value + random_.normal();
    }
    using RowsPush = ParameterClient::RowsPush;
    Transfer pushes[] = {
        client.push(RowsPush{
            .table = 0, .keys = keys, .clock = clock, .gradients = user, .learning_rate = 0.1}),
        client.push(RowsPush{
            .table = 1, .keys = keys, .clock = clock, .gradients = weights, .learning_rate = 0.2}),
        client.push(ParameterClient::TensorPush{
            .tensor = 0, .clock = clock, .gradient = tensor, .learning_rate = 0.01})};
    for (Transfer& push : pushes) TRY(push.wait());
    return {};
  }
  // Work of random length.
  void compute(uint64_t most) {
    std::atomic<uint64_t> sum{0};
    for (uint64_t i = random_.below(most); i > 0; --i) sum += i;
  }

 private:
  std::vector<uint64_t> draw_keys() {
    std::set<uint64_t> keys;
    for (int i = 0; i < 8; ++i) keys.insert(random_.below(random_.below(120) + 1));
    return {keys.begin(), keys.end()};
  }
  Worker worker_;
  Random random_;
};

bool train(const Servers& servers, uint32_t rank) {
  Trainer trainer(servers, rank);
  for (uint64_t clock = 0; clock < kSteps; ++clock) {
    const Status done = trainer.step(clock);
    if (!done.ok()) {
      std::fprintf(stderr, "rank %u: %s\n", rank, done.error().message.c_str());
      return false;
    }
    trainer.compute(rank == 2 ? 4'000'000 : 400'000);  // rank 2 is slower
  }
  return true;
}

struct Trained {
  View view;
  std::vector<KeptEvent> events;
};

Trained train_on(const Consistency& consistency, uint64_t seed) {
  KeptHistory history;
  Servers servers({.catalog = catalog(),
                   .placement = {.range_elements_max = 100},
                   .consistency = consistency,
                   .seed = seed,
                   .recorder = history.recorder()});
  std::vector<WorkerProcess> processes;
  for (const uint32_t rank : {0u, 1u, 2u}) {
    processes.emplace_back([&servers, rank] { return train(servers, rank); });
  }
  servers.start();
  for (WorkerProcess& process : processes) EXPECT_TRUE(process.join());
  for (size_t i = 0; i < 2; ++i) servers.stop(i);
  return {servers.view(), history.events()};
}

constexpr uint64_t kSeed = 41;

// Counts those of a range, or of all slots of a table.
size_t updates_of(const std::vector<KeptEvent>& events, uint32_t worker, UnitId unit) {
  return static_cast<size_t>(std::ranges::count_if(events, [&](const KeptEvent& kept) {
    return kept.event.kind == HistoryEvent::Kind::kUpdate && kept.event.unit.kind == unit.kind &&
           kept.event.unit.index == unit.index &&
           std::ranges::find(kept.workers, worker) != kept.workers.end();
  }));
}

void expect_replay(const Trained& trained) {
  test::Replay replay(catalog(), trained.view, kSeed);
  const auto outcome = replay.run(trained.events);
  EXPECT_EQ(outcome.mismatch, "");
  EXPECT_GE(outcome.pulls, 3 * kSteps * 3);
  EXPECT_GT(outcome.updates, kSteps);
  EXPECT_GT(outcome.expiries, 0u);
}

class BoundedStaleness : public testing::TestWithParam<uint64_t> {};

TEST_P(BoundedStaleness, IsASequenceThatNeverExceedsTheBound) {
  const uint64_t staleness = GetParam();
  const Trained trained =
      train_on({.kind = ConsistencyKind::kBoundedStaleness, .staleness = staleness}, kSeed);
  expect_replay(trained);
  // Ranges have clocks of their own, counted here from the updates alone.
  std::map<UnitId, std::map<uint32_t, uint64_t>> clocks;
  uint64_t most = 0;
  for (const KeptEvent& kept : trained.events) {
    const HistoryEvent& event = kept.event;
    if (event.kind == HistoryEvent::Kind::kPull) {
      most = std::max(most, event.clock - std::min(event.clock, event.slowest));
    }
    if (event.unit.kind != UnitKind::kRange) continue;
    auto& own = clocks[event.unit];
    if (event.kind == HistoryEvent::Kind::kUpdate) ++own[kept.workers.at(0)];
    if (event.kind != HistoryEvent::Kind::kPull) continue;
    const uint64_t slowest = std::min({own[0], own[1], own[2]});
    ASSERT_EQ(event.slowest, slowest);
    ASSERT_EQ(event.clock, own[event.worker]);
    ASSERT_LE(event.clock - slowest, staleness);
  }
  EXPECT_LE(most, staleness);
  if (staleness > 0) {
    EXPECT_GT(most, 0u);  // rank 2 is slower, so the others get ahead
  }
  for (uint32_t i = 0; i < trained.view.ranges.size(); ++i) {
    for (const uint32_t worker : {0u, 1u, 2u}) {
      EXPECT_EQ(updates_of(trained.events, worker, {UnitKind::kRange, i}), kSteps);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, BoundedStaleness, testing::Values(0, 1, 3, 10));

TEST(Asynchronous, IsASequenceThatHasEveryPushOnce) {
  const Trained trained = train_on({.kind = ConsistencyKind::kAsynchronous}, kSeed);
  expect_replay(trained);
  for (const uint32_t worker : {0u, 1u, 2u}) {
    EXPECT_EQ(updates_of(trained.events, worker, {UnitKind::kRange, 0}), kSteps);
    // The table has two slots.
    EXPECT_EQ(updates_of(trained.events, worker, {UnitKind::kTable, 0}), 2 * kSteps);
  }
}

TEST(Synchronous, IsASequenceOfUpdatesInTheOrderOfWorkers) {
  const Trained trained = train_on({}, kSeed);
  expect_replay(trained);
  for (const KeptEvent& kept : trained.events) {
    if (kept.event.kind != HistoryEvent::Kind::kUpdate) continue;
    ASSERT_EQ(kept.workers, (std::vector<uint32_t>{0, 1, 2}));
  }
}

// Whatever the order in which pushes arrive.
TEST(Synchronous, HasTheSameBitsInEveryRun) {
  const auto pulls_of = [](const Trained& trained) {
    std::multimap<std::tuple<UnitId, uint32_t, uint64_t>, std::vector<float>> pulls;
    for (const KeptEvent& kept : trained.events) {
      if (kept.event.kind != HistoryEvent::Kind::kPull) continue;
      if (kept.event.unit.kind != UnitKind::kRange) continue;
      pulls.emplace(std::tuple(kept.event.unit, kept.event.worker, kept.event.clock), kept.values);
    }
    return pulls;
  };
  const auto first = pulls_of(train_on({}, kSeed));
  EXPECT_EQ(first.size(), 3 * 3 * kSteps);
  EXPECT_EQ(first, pulls_of(train_on({}, kSeed)));
}

TEST(Synchronous, WithABackupWorkerCountsTheFirstOnes) {
  const Trained trained = train_on({.backup_workers = 1}, kSeed);
  expect_replay(trained);
  for (const KeptEvent& kept : trained.events) {
    if (kept.event.kind != HistoryEvent::Kind::kUpdate) continue;
    ASSERT_EQ(kept.workers.size(), 2u);
    ASSERT_TRUE(std::ranges::is_sorted(kept.workers));
  }
  EXPECT_EQ(updates_of(trained.events, 0, {UnitKind::kRange, 0}) +
                updates_of(trained.events, 1, {UnitKind::kRange, 0}) +
                updates_of(trained.events, 2, {UnitKind::kRange, 0}),
            2 * kSteps);
}

// The servers behind proxies that cut one worker's connections.
struct CutAddresses {
  CutAddresses(const Servers& servers, uint64_t seed) : addresses(servers.addresses()) {
    for (rpc::Client::ServerAddress& server : addresses) {
      proxies.push_back(std::make_unique<test::CuttingProxy>(
          test::CuttingProxy::Options{.target_port = server.address.port,
                                      .seed = seed,
                                      .bytes_min = 2000,
                                      .bytes_max = 60'000}));
      server.address.port = proxies.back()->port();
    }
  }
  int cuts() const {
    int all = 0;
    for (const auto& proxy : proxies) all += proxy->cuts();
    return all;
  }
  std::vector<rpc::Client::ServerAddress> addresses;
  std::vector<std::unique_ptr<test::CuttingProxy>> proxies;
};

// Connections that break at any byte: every push is applied exactly once all the same.
class Cuts : public testing::TestWithParam<uint64_t> {};

TEST_P(Cuts, LoseNoPushAndRepeatNone) {
  KeptHistory history;
  Servers servers({.catalog = catalog(),
                   .placement = {.range_elements_max = 100},
                   .consistency = {.kind = ConsistencyKind::kBoundedStaleness, .staleness = 2},
                   .seed = kSeed,
                   .recorder = history.recorder()});
  servers.start();
  std::vector<std::thread> workers;
  std::atomic<uint64_t> steps{0};
  std::atomic<int> cuts{0};
  for (const uint32_t rank : {0u, 1u, 2u}) {
    workers.emplace_back([&, rank] {
      const CutAddresses cut(servers, GetParam() * 10 + rank);
      Trainer trainer(servers, rank, cut.addresses);
      for (uint64_t clock = 0; clock < kSteps; ++clock) {
        const Status done = trainer.step(clock);
        ASSERT_TRUE(done.ok()) << done.error().message;
        ++steps;
      }
      cuts += cut.cuts();
    });
  }
  for (std::thread& worker : workers) worker.join();
  for (size_t i = 0; i < 2; ++i) servers.stop(i);
  EXPECT_EQ(steps, 3 * kSteps);
  EXPECT_GT(cuts, 5);
  const Trained trained{servers.view(), history.events()};
  expect_replay(trained);
  for (const uint32_t worker : {0u, 1u, 2u}) {
    EXPECT_EQ(updates_of(trained.events, worker, {UnitKind::kTable, 0}), 2 * kSteps);
    for (uint32_t i = 0; i < trained.view.ranges.size(); ++i) {
      EXPECT_EQ(updates_of(trained.events, worker, {UnitKind::kRange, i}), kSteps);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, Cuts, testing::Values(1, 2, 3));

}  // namespace
}  // namespace lockstep::server
