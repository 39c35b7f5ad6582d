#include "agent/parallel/world_totals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

#include "agent/comm/make_communicator.h"
#include "kernels/ops/op_table.h"

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
                               .counted = 10,
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

// Rank r has r + 1: the sums are over the ranks with the same place on the data axis.
TEST(WorldTotals, AddSquaresOfRanksThatHoldDifferentParts) {
  const Mesh mesh{.pipeline = 2, .data = 2, .tensor = 2};
  auto world = comm::make_thread_world(static_cast<int>(mesh.size())).value();
  std::vector<kernels::SquareSum> sums(world.size());
  {
    std::vector<std::jthread> ranks;
    for (size_t rank = 0; rank < world.size(); ++rank) {
      ranks.emplace_back([&, rank] {
        const RankGroups groups = RankGroups::create(*world[rank], mesh_groups(mesh)).value();
        const float value = std::sqrt(static_cast<float>(rank + 1));
        const kernels::FlatTensor tensor{&value, 1};
        kernels::Stream stream;
        kernels::cpu_ops().squared_norm(stream, {.tensors = {&tensor, 1}, .sum = &sums[rank]});
        std::vector<comm::Work> pending;
        EXPECT_TRUE(add_up_squares(norm_groups(groups, mesh, false).value(),
                                   {.sum = &sums[rank], .device = {}, .stream = stream}, pending)
                        .ok());
        EXPECT_TRUE(pending.empty());
      });
    }
  }
  for (size_t rank = 0; rank < sums.size(); ++rank) {
    // (pipeline * 2 + data) * 2 + tensor
    const bool is_first = coordinates(mesh, static_cast<int64_t>(rank)).data == 0;
    EXPECT_NEAR(kernels::value_of(sums[rank]), is_first ? 1 + 2 + 5 + 6 : 3 + 4 + 7 + 8, 1e-5);
    EXPECT_EQ(kernels::value_of(sums[rank]), kernels::value_of(sums[is_first ? 0 : 2]));
  }
}

// Rank r has r + 1. Data- and tensor-parallel ranks repeat the squares of their stage.
TEST(WorldTotals, AddTheSquaresOfEachStageOnce) {
  const Mesh mesh{.pipeline = 2, .data = 2, .tensor = 2};
  std::vector<RankTotals> ranks;
  for (int rank = 0; rank < 8; ++rank) ranks.push_back({.squares = rank + 1.0});
  EXPECT_EQ(totals_of(ranks, mesh).squares, 1.0 + 5.0);
}

TEST(WorldTotals, LeaveTheStagesApartThatUpdateApart) {
  const Mesh mesh{.pipeline = 2, .tensor = 2};
  auto world = comm::make_thread_world(4).value();
  std::vector<std::jthread> threads;
  for (auto& rank : world) {
    threads.emplace_back([&, world = rank.get()] {
      const RankGroups groups = RankGroups::create(*world, mesh_groups(mesh)).value();
      EXPECT_EQ(norm_groups(groups, mesh, false).value().size(), 2u);
      const std::vector<comm::Communicator*> apart = norm_groups(groups, mesh, true).value();
      ASSERT_EQ(apart.size(), 1u);
      EXPECT_EQ(apart[0], groups.of(Axis::kTensor).value());
    });
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
