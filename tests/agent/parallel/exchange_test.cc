// The ways of data-parallel ranks to work together, on ranks that are threads.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include "agent/comm/make_communicator.h"
#include "tests/agent/comm/worlds.h"
#include "tests/agent/parallel/exchange_ranks.h"

namespace lockstep::parallel {
namespace {

using test::on_all;
using test::Transport;

constexpr int64_t kSteps = 4;
constexpr uint64_t kSquareBytes = sizeof(kernels::SquareSum);

// Returns what each rank of a world of threads has after some steps.
std::vector<Exchanged> train(ExchangeSetup setup, int ranks) {
  const SharedFile file;
  setup.shared = {.fd = file.fd()};
  test::World world = test::make_world(Transport::kThreads, ranks);
  std::vector<Exchanged> results(world.size());
  on_all(world, [&](comm::Communicator& comm) {
    results[static_cast<size_t>(comm.rank())] = exchanged(setup, comm, kSteps);
  });
  return results;
}

// Returns false after a limit, so that a test fails instead of hanging.
bool wait_until(const std::function<bool()>& holds) {
  const SystemClock clock;
  const TimePoint begin = clock.now();
  while (!holds() && clock.now() - begin < std::chrono::seconds(20)) std::this_thread::yield();
  return holds();
}

optim::OptimizerOptions optimizer_of(optim::OptimizerKind kind) {
  return {.kind = kind, .epsilon = 1e-5, .momentum = 0.9};
}

class Exchanges : public testing::TestWithParam<Exchange> {};
INSTANTIATE_TEST_SUITE_P(Of, Exchanges, testing::Values(Exchange::kFirstRank, Exchange::kHost),
                         [](const auto& info) { return std::string(exchange_name(info.param)); });

TEST_P(Exchanges, GiveWhatTheAllReduceGivesAndTheSameBitsForTwoRanks) {
  for (const auto kind :
       {optim::OptimizerKind::kAdamW, optim::OptimizerKind::kSgd, optim::OptimizerKind::kAdagrad}) {
    for (const int ranks : {1, 2, 3, 4}) {
      ExchangeSetup setup{.optimizer = optimizer_of(kind)};
      const std::vector<Exchanged> expected = train(setup, ranks);
      setup.exchange = GetParam();
      const std::vector<Exchanged> results = train(setup, ranks);
      for (const Exchanged& result : results) {
        EXPECT_TRUE(result == results[0]) << ranks << " ranks";
        EXPECT_EQ(result.norms.size(), static_cast<size_t>(kSteps));
      }
      if (ranks <= 2) {
        EXPECT_TRUE(results[0] == expected[0]) << ranks << " ranks";
      }
      EXPECT_LT(distance(results[0].parameters, expected[0].parameters), 1e-6);
      for (size_t step = 0; step < results[0].norms.size(); ++step) {
        EXPECT_NEAR(results[0].norms[step] / expected[0].norms[step], 1, 1e-6);
      }
    }
  }
}

TEST_P(Exchanges, GiveTheSameBitsAgain) {
  const ExchangeSetup setup{.exchange = GetParam()};
  EXPECT_TRUE(train(setup, 4) == train(setup, 4));
}

TEST_P(Exchanges, MakeTheCopiesForProductsThatTheAllReduceMakes) {
  ExchangeSetup setup{.optimizer = {.rounding_seed = 5}, .has_copies = true};
  const std::vector<Exchanged> expected = train(setup, 2);
  ASSERT_FALSE(expected[0].copies.empty());
  setup.exchange = GetParam();
  for (const Exchanged& result : train(setup, 2)) EXPECT_TRUE(result == expected[0]);
}

TEST_P(Exchanges, UpdateNothingOnAnyRankWhereTheNormIsNotFinite) {
  const SharedFile file;
  const ExchangeSetup setup{.exchange = GetParam(), .shared = {.fd = file.fd()}};
  test::World world = test::make_world(Transport::kThreads, 3);
  on_all(world, [&](comm::Communicator& comm) {
    ExchangeRank rank(setup, comm);
    ASSERT_TRUE(rank.step(1).ok());
    const Exchanged before = rank.result();
    const float extra = comm.rank() == 2 ? std::numeric_limits<float>::infinity() : 0.0f;
    ASSERT_TRUE(rank.step(2, extra).ok());
    const Exchanged after = rank.result();
    EXPECT_TRUE(std::isinf(after.norms.back()));
    EXPECT_EQ(after.parameters, before.parameters);
    ASSERT_TRUE(rank.step(3).ok());
    const Exchanged later = rank.result();
    EXPECT_TRUE(std::isfinite(later.norms.back()));
    EXPECT_NE(later.parameters, before.parameters);
    EXPECT_TRUE(std::isfinite(distance(later.parameters, before.parameters)));
  });
}

// Rank 1 goes on with backward only when rank 0 has received its last bucket.
TEST(FirstRankExchange, SendsEachBucketWhileBackwardGoesOn) {
  test::World world = test::make_world(Transport::kThreads, 2);
  std::atomic<uint64_t> received = 0;
  on_all(world, [&received](comm::Communicator& comm) {
    ExchangeRank rank({.exchange = Exchange::kFirstRank}, comm);
    ASSERT_GE(rank.exchange().buckets().size(), 3u);
    rank.exchange().begin_step(rank.ops());
    rank.exchange().enable_reduction();
    ASSERT_TRUE(rank.make(1, 0).ok());
    const uint64_t before = comm.traffic().bytes_received;
    uint64_t bytes = 0;
    for (const Bucket& bucket : rank.exchange().buckets()) {
      ASSERT_TRUE(rank.add(bucket.first_id, bucket.last_id).ok());
      bytes += float_bytes(bucket.count);
      const auto has_arrived = [&] {
        if (comm.rank() == 0) received = comm.traffic().bytes_received - before;
        return received >= bytes;
      };
      EXPECT_TRUE(wait_until(has_arrived));
    }
    ASSERT_TRUE(rank.exchange().end_micro_batch().ok());
    ASSERT_TRUE(rank.finish(1).ok());
  });
}

TEST(FirstRankExchange, MovesEveryGradientAndParameterThroughTheFirstRank) {
  for (const int ranks : {1, 2, 3, 4}) {
    test::World world = test::make_world(Transport::kThreads, ranks);
    on_all(world, [ranks](comm::Communicator& comm) {
      ExchangeRank rank({.exchange = Exchange::kFirstRank}, comm);
      const comm::Traffic before = comm.traffic();
      for (int64_t step = 1; step <= kSteps; ++step) ASSERT_TRUE(rank.step(step).ok());
      const comm::Traffic after = comm.traffic();
      const auto peers = static_cast<uint64_t>(ranks - 1);
      const uint64_t gradients = kSteps * rank.arena_bytes();
      const uint64_t answer = kSteps * (rank.arena_bytes() + kSquareBytes);
      const bool is_first = comm.rank() == 0;
      EXPECT_EQ(after.bytes_received - before.bytes_received,
                is_first ? peers * gradients : answer);
      EXPECT_EQ(after.bytes_sent - before.bytes_sent, is_first ? peers * answer : gradients);
      EXPECT_EQ(rank.exchange().shared_traffic().bytes_written, 0u);
    });
  }
}

TEST(HostExchange, MovesTheGradientsOfEachRankInAndItsParametersOut) {
  for (const int ranks : {1, 2, 3, 4}) {
    const SharedFile file;
    test::World world = test::make_world(Transport::kThreads, ranks);
    on_all(world, [&file](comm::Communicator& comm) {
      ExchangeRank rank({.exchange = Exchange::kHost, .shared = {.fd = file.fd()}}, comm);
      const uint64_t before = comm.traffic().bytes_sent;
      for (int64_t step = 1; step <= kSteps; ++step) ASSERT_TRUE(rank.step(step).ok());
      EXPECT_EQ(rank.exchange().shared_traffic().bytes_written, kSteps * rank.arena_bytes());
      EXPECT_EQ(rank.exchange().shared_traffic().bytes_read, kSteps * rank.arena_bytes());
      // The rest is the squares, which are added up over the ranks.
      const auto peers = static_cast<uint64_t>(comm.size() - 1);
      EXPECT_LE(comm.traffic().bytes_sent - before, kSteps * 2 * peers * kSquareBytes);
    });
  }
}

TEST(FirstRankExchange, HasStatesOnTheFirstRankAlone) {
  test::World world = test::make_world(Transport::kThreads, 3);
  on_all(world, [](comm::Communicator& comm) {
    ExchangeRank rank({.exchange = Exchange::kFirstRank}, comm);
    EXPECT_EQ(rank.exchange().states().size(), comm.rank() == 0 ? 2u : 0u);
  });
}

TEST(HostExchange, LetsEachRankReadTheStatesThatOthersHaveWritten) {
  const SharedFile file;
  test::World world = test::make_world(Transport::kThreads, 3);
  on_all(world, [&file](comm::Communicator& comm) {
    ExchangeRank rank({.exchange = Exchange::kHost, .shared = {.fd = file.fd()}}, comm);
    const auto states = rank.exchange().states();
    ASSERT_EQ(states.size(), 2u);
    EXPECT_EQ(states[0].values[0], 0.0f);
    ASSERT_TRUE(comm.barrier().ok());
    states[1].values[comm.rank()] = static_cast<float>(1 + comm.rank());
    ASSERT_TRUE(comm.barrier().ok());
    for (int other = 0; other < 3; ++other) {
      EXPECT_EQ(states[1].values[other], static_cast<float>(1 + other));
    }
  });
}

TEST(HostExchange, TakesAsMuchMemoryAsItsPlanSays) {
  const SharedFile file;
  constexpr uint64_t kBefore = 100'000;  // of the communicator
  test::World world = test::make_world(Transport::kThreads, 3);
  on_all(world, [&file](comm::Communicator& comm) {
    const SharedSegment::Place place{.fd = file.fd(), .offset = kBefore};
    ExchangeRank rank({.exchange = Exchange::kHost, .shared = place}, comm);
    ASSERT_TRUE(rank.step(1).ok());
    struct stat info {};
    ASSERT_EQ(::fstat(file.fd(), &info), 0);
    const uint64_t planned = host_segment_bytes(rank.arena(), {}, 3);
    const auto pages = [](uint64_t bytes) { return (bytes + 4095) / 4096; };
    EXPECT_EQ(static_cast<uint64_t>(info.st_size), 4096 * (pages(kBefore) + pages(planned)));
    EXPECT_EQ(static_cast<uint64_t>(info.st_blocks) * 512, 4096 * pages(planned));
  });
}

TEST(SharedSegment, RefusesRanksOfSeveralNodesAndRanksWithoutAFile) {
  const SharedFile file;
  auto apart = comm::make_thread_world(2, std::chrono::seconds(60), {0, 1});
  ASSERT_TRUE(apart.ok());
  on_all(*apart, [&file](comm::Communicator& comm) {
    const auto segment = SharedSegment::map(comm, {.fd = file.fd()}, 4096);
    ASSERT_FALSE(segment.ok());
    EXPECT_EQ(segment.error().code, Code::kInvalid);
    EXPECT_EQ(segment.error().blame, Blame::kConfig);
    EXPECT_EQ(segment.error().message,
              "[shared memory] expected all ranks on one node, got 2 ranks on 2 nodes");
  });
  test::World together = test::make_world(Transport::kThreads, 2);
  on_all(together, [](comm::Communicator& comm) {
    const auto segment = SharedSegment::map(comm, {}, 4096);
    ASSERT_FALSE(segment.ok());
    EXPECT_EQ(segment.error().message,
              "[shared memory] expected a descriptor of memory that the 2 ranks share, got none");
  });
}

TEST(SharedSegment, ReportsALackOfMemory) {
  const SharedFile file;
  test::World world = test::make_world(Transport::kThreads, 1);
  // More than any system allocates, even if it were asked.
  const auto segment = SharedSegment::map(*world[0], {.fd = file.fd()}, uint64_t{1} << 63);
  ASSERT_FALSE(segment.ok());
  EXPECT_EQ(segment.error().code, Code::kUnavailable);
  EXPECT_NE(segment.error().message.find("[memory] 8.00 EiB (9223372036854775808 bytes) for "
                                         "memory that the ranks share on CPU: "),
            std::string::npos)
      << segment.error().message;
}

// How far a rank gets is chance: the other one may leave before it has the last parameters.
Status steps_until_an_error(ExchangeRank& rank) {
  Status status;
  for (int64_t step = 1; status.ok(); ++step) status = rank.step(step);
  return status;
}

// A rank that leaves in the middle of a step, after its first bucket.
TEST_P(Exchanges, NameARankThatLeaves) {
  const SharedFile file;
  const ExchangeSetup setup{.exchange = GetParam(), .shared = {.fd = file.fd()}};
  test::World world = test::make_world(Transport::kThreads, 3);
  on_all(world, [&](comm::Communicator& comm) {
    {
      ExchangeRank rank(setup, comm);
      if (comm.rank() != 2) {
        const Status status = steps_until_an_error(rank);
        EXPECT_EQ(status.error().blame, Blame::kPeer);
        EXPECT_NE(status.error().message.find("rank 2"), std::string::npos)
            << status.error().message;
        EXPECT_EQ(comm.suspect(), 2);
        return;
      }
      ASSERT_TRUE(rank.step(1).ok());
      rank.exchange().begin_step(rank.ops());
      rank.exchange().enable_reduction();
      const Bucket& first = rank.exchange().buckets().front();
      ASSERT_TRUE(rank.make(1, 0).ok());
      ASSERT_TRUE(rank.add(first.first_id, first.last_id).ok());
      comm.abort("gone");
    }
  });
}

TEST(ExchangeMemory, FollowsTheArchitecture) {
  const ParameterArena arena = parameter_arena(exchanged_model(), whole_model(exchanged_model()));
  const uint64_t bytes = float_bytes(arena.count);
  const auto memory = [&](Exchange exchange, int rank, bool is_stream_ordered = false) {
    return exchange_memory({.exchange = exchange,
                            .arena = arena,
                            .bucket_bytes = 1,  // a bucket for each parameter
                            .ranks = 4,
                            .rank = rank,
                            .is_stream_ordered = is_stream_ordered});
  };
  EXPECT_EQ(memory(Exchange::kAllReduce, 3).state_bytes, 2 * bytes);
  EXPECT_EQ(memory(Exchange::kFirstRank, 0).state_bytes, 2 * bytes);
  EXPECT_EQ(memory(Exchange::kFirstRank, 0).staging_bytes, 0u);
  EXPECT_EQ(memory(Exchange::kFirstRank, 1, true).state_bytes, 0u);
  EXPECT_EQ(memory(Exchange::kFirstRank, 1, true).staging_bytes, 0u);
  int64_t largest = 0;
  for (const ArenaEntry& entry : arena.entries) largest = std::max(largest, entry.count);
  EXPECT_EQ(memory(Exchange::kFirstRank, 0, true).staging_bytes, float_bytes(largest));
  EXPECT_EQ(memory(Exchange::kHost, 2).state_bytes, 0u);
  EXPECT_EQ(memory(Exchange::kHost, 2).shared_bytes, (1 + 2 + 4) * bytes);
  EXPECT_EQ(state_holders(Exchange::kAllReduce), StateHolders::kEveryRank);
  EXPECT_EQ(state_holders(Exchange::kFirstRank), StateHolders::kFirstRank);
  EXPECT_EQ(state_holders(Exchange::kHost), StateHolders::kShared);
}

}  // namespace
}  // namespace lockstep::parallel
