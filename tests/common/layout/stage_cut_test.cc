#include "common/layout/stage_cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "common/base/random.h"

namespace lockstep {
namespace {

using Counts = std::vector<int64_t>;

Counts cut(const std::vector<double>& costs, int64_t parts) {
  return cut_by_cost(costs, parts);
}

TEST(CutByCost, GivesEqualPiecesEvenlyAndTheRestToTheEarlierRuns) {
  EXPECT_EQ(cut({1, 1, 1, 1}, 1), Counts({4}));
  EXPECT_EQ(cut({1, 1, 1, 1}, 4), Counts({1, 1, 1, 1}));
  EXPECT_EQ(cut({1, 1, 1, 1, 1}, 3), Counts({2, 2, 1}));
  EXPECT_EQ(cut({1, 1, 1, 1, 1, 1, 1}, 3), Counts({3, 2, 2}));
}

TEST(CutByCost, MakesTheMostExpensiveRunAsCheapAsItCanBe) {
  EXPECT_EQ(cut({9, 1, 1, 1}, 2), Counts({1, 3}));
  EXPECT_EQ(cut({1, 1, 1, 9}, 2), Counts({3, 1}));
  EXPECT_EQ(cut({3, 3, 3, 9}, 2), Counts({3, 1}));
}

TEST(CutByCost, EvensOutTheOtherRuns) {
  EXPECT_EQ(cut({10, 1, 1, 1, 1}, 3), Counts({1, 2, 2}));
}

TEST(CutByCost, TakesPiecesWithoutCost) {
  EXPECT_EQ(cut({0, 0, 0}, 2), Counts({2, 1}));
}

// The cost of the most expensive run in the best of all cuts.
double least_maximum(const std::vector<double>& costs, size_t first, int64_t parts) {
  if (parts == 1)
    return std::accumulate(costs.begin() + static_cast<std::ptrdiff_t>(first), costs.end(), 0.0);
  double least = std::numeric_limits<double>::infinity();
  double run = 0;
  for (size_t end = first + 1; end + static_cast<size_t>(parts) - 1 <= costs.size(); ++end) {
    run += costs[end - 1];
    least = std::min(least, std::max(run, least_maximum(costs, end, parts - 1)));
  }
  return least;
}

TEST(CutByCost, IsAsGoodAsTheBestOfAllCuts) {
  constexpr uint64_t kSeed = 11;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Random random(kSeed);
  for (int run = 0; run < 200; ++run) {
    std::vector<double> costs(1 + random.below(8));
    for (double& cost : costs) cost = static_cast<double>(random.below(20));
    const auto parts = static_cast<int64_t>(1 + random.below(costs.size()));
    const Counts counts = cut(costs, parts);
    ASSERT_EQ(std::ssize(counts), parts);
    double worst = 0;
    auto first = costs.begin();
    for (const int64_t count : counts) {
      ASSERT_GE(count, 1);
      worst = std::max(worst, std::accumulate(first, first + count, 0.0));
      first += count;
    }
    ASSERT_EQ(first, costs.end());
    EXPECT_EQ(worst, least_maximum(costs, 0, parts));
  }
}

}  // namespace
}  // namespace lockstep
