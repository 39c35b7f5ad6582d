// The state of one world goes to another one, in pieces that are much smaller than its shares.
#include "agent/train/checkpoint/share_delivery.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/agent/parallel/trained_ranks.h"

namespace lockstep::train {
namespace {

using parallel::ComposeOptions;
using parallel::Composition;
using parallel::kSteps;

const ModelConfig kGpt = parallel::small_gpt(2);

ComposeOptions options_of(int64_t ranks, Sharding sharding, int64_t shard_ranks) {
  ComposeOptions options = parallel::options_for(kGpt, {.data = ranks}, 1);
  if (sharding != Sharding::kNone) {
    options.sharding = {.sharding = sharding, .ranks = shard_ranks};
  }
  options.copies_share = true;
  return options;
}

// Calls `body` with the composition of each rank, on a thread of its own.
template <class Body>
void on_ranks(const ComposeOptions& options, const Body& body) {
  const SystemClock clock;
  auto world = comm::make_thread_world(static_cast<int>(options.mesh.size())).value();
  std::vector<std::jthread> ranks;
  for (auto& communicator : world) {
    ranks.emplace_back([&, world = communicator.get()] {
      auto model = Composition::create(options, *world, clock);
      ASSERT_TRUE(model.ok()) << model.error().message;
      body(**model, *world);
    });
  }
}

// Returns the shares of the state by rank.
std::vector<std::vector<float>> shares_of(const ComposeOptions& options,
                                          parallel::KeptState& state) {
  std::vector<std::vector<float>> shares(static_cast<size_t>(options.mesh.size()));
  std::mutex one_at_a_time;
  on_ranks(options, [&](Composition& model, comm::Communicator& world) {
    {
      const std::lock_guard lock(one_at_a_time);
      ASSERT_TRUE(model.read_share(state).ok());
    }
    ASSERT_TRUE(model.exchange_shares(kSteps).ok());
    std::vector<float>& share = shares[static_cast<size_t>(world.rank())];
    share.resize(model.share_values());
    ASSERT_TRUE(model.copy_share(share).ok());
  });
  return shares;
}

struct Case {
  const char* name;
  int64_t from, from_shards, to, to_shards;
  Sharding sharding;
};

TEST(ShareDelivery, GivesEveryRankWhatItHoldsBitForBit) {
  parallel::KeptState state = parallel::train(parallel::options_for(kGpt, {}, 1)).state;
  const Case cases[] = {
      {"ZeRO-3, fewer ranks", 4, 4, 2, 2, Sharding::kParameters},
      {"ZeRO-3, more ranks", 2, 2, 4, 4, Sharding::kParameters},
      {"ZeRO-1 in groups of two", 4, 2, 2, 2, Sharding::kOptimizer},
      {"to a single rank", 4, 4, 1, 1, Sharding::kOptimizer},
      {"replicated", 4, 1, 2, 1, Sharding::kNone},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    const ComposeOptions before = options_of(one.from, one.sharding, one.from_shards);
    const auto shares = shares_of(before, state);
    const ComposeOptions options = options_of(one.to, one.sharding, one.to_shards);
    parallel::KeptState found(kGpt);
    std::mutex one_at_a_time;
    on_ranks(options, [&](Composition& model, comm::Communicator& world) {
      std::vector<ShareSource> sources;
      for (size_t i = 0; i < shares.size(); ++i) {  // with fewer ranks, some have two
        const int rank = static_cast<int>(i) % world.size();
        sources.push_back({.rank = rank});
        if (rank == world.rank()) sources.back().values = shares[i];
      }
      ShareDelivery delivery(world, model, {one.from, one.from_shards}, sources,
                             {.piece_values = 101, .pieces = 2});
      const Status delivered = delivery.deliver();
      ASSERT_TRUE(delivered.ok()) << delivered.error().message;
      ASSERT_TRUE(model.shares_taken(kSteps).ok());
      model.reserve_snapshot();
      ASSERT_TRUE(model.take_snapshot().ok());
      const std::lock_guard lock(one_at_a_time);
      found.add(model.snapshot());
    });
    EXPECT_TRUE(found.tensors() == state.tensors());
  }
}

}  // namespace
}  // namespace lockstep::train
