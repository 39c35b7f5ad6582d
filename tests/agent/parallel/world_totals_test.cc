#include "agent/parallel/world_totals.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "agent/comm/make_communicator.h"

namespace lockstep::parallel {
namespace {

// Returns what each rank of the mesh gets, where rank r adds r + 1 nats over 10 tokens.
std::vector<WorldTotals> totals_of(const Mesh& mesh, int64_t stopped_rank = -1) {
  auto world = comm::make_thread_world(static_cast<int>(mesh.size())).value();
  std::vector<WorldTotals> totals(world.size());
  {
    std::vector<std::jthread> ranks;
    for (size_t rank = 0; rank < world.size(); ++rank) {
      ranks.emplace_back([&, rank] {
        totals[rank] = add_up(*world[rank], mesh,
                              {.loss_sum = static_cast<double>(rank) + 1,
                               .tokens = 10,
                               .stop = static_cast<int64_t>(rank) == stopped_rank ? 1 : 0})
                           .value();
      });
    }
  }
  return totals;
}

TEST(WorldTotals, AreTheMeanOverAllTokensOnEveryRank) {
  for (const WorldTotals& totals : totals_of({.data = 4})) {
    EXPECT_EQ(totals.loss, (1.0 + 2 + 3 + 4) / 40);
    EXPECT_FALSE(totals.stop);
  }
}

TEST(WorldTotals, CountRanksThatRepeatALossOnce) {
  for (const WorldTotals& totals : totals_of({.data = 2, .tensor = 2})) {
    EXPECT_EQ(totals.loss, (1.0 + 3) / 20);
  }
}

TEST(WorldTotals, TakeTheLossOfTheLastStage) {
  for (const WorldTotals& totals : totals_of({.pipeline = 2, .data = 2})) {
    EXPECT_EQ(totals.loss, (3.0 + 4) / 20);
  }
}

TEST(WorldTotals, TellEveryRankOfAStopOnAnyOfThem) {
  for (const WorldTotals& totals : totals_of({.pipeline = 2, .tensor = 2}, 1)) {
    EXPECT_TRUE(totals.stop);
  }
}

}  // namespace
}  // namespace lockstep::parallel
