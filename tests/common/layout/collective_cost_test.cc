#include "common/layout/collective_cost.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep {
namespace {

CollectiveSteps steps_of(const CollectiveCase& what) {
  const auto steps = collective_steps(what);
  EXPECT_TRUE(steps.ok()) << steps.error().message;
  return steps->network;
}

TEST(CollectiveCost, ARingsBytesStayBoundedAndItsStepsGrowWithTheWorld) {
  for (const int64_t n : {2, 3, 8, 100, 4096}) {
    const CollectiveSteps steps = steps_of({.ranks = n, .block_bytes = 1e6});
    EXPECT_DOUBLE_EQ(steps.steps, 2.0 * static_cast<double>(n - 1));
    EXPECT_LT(steps.bytes, 2e6);
  }
}

TEST(CollectiveCost, MessagesBehindOneAnotherCostHalfALatencyEach) {
  const Network network{.latency_s = 1, .bytes_per_s = 1e12};
  EXPECT_DOUBLE_EQ(
      *collective_seconds({.algorithm = CollectiveAlgorithm::kDirect, .ranks = 8}, network), 4);
  EXPECT_DOUBLE_EQ(
      *collective_seconds({.algorithm = CollectiveAlgorithm::kHalving, .ranks = 8}, network), 6);
}

TEST(CollectiveCost, ByHostSparesTheHostsPortAndPaysWithinHosts) {
  Network network{.latency_s = 0, .bytes_per_s = 1, .host_latency_s = 0, .host_bytes_per_s = 100};
  CollectiveCase what{.ranks = 16, .block_bytes = 1000, .hosts = 4};
  const auto seconds = [&](CollectiveAlgorithm algorithm) {
    what.algorithm = algorithm;
    return *collective_seconds(what, network);
  };
  EXPECT_DOUBLE_EQ(seconds(CollectiveAlgorithm::kByHost), 1500);
  network.host_bytes_per_s = 0.5;
  EXPECT_DOUBLE_EQ(seconds(CollectiveAlgorithm::kByHost), 3000);
  EXPECT_DOUBLE_EQ(seconds(CollectiveAlgorithm::kRing), 1875);
  EXPECT_DOUBLE_EQ(seconds(CollectiveAlgorithm::kHalving), 4 * 1875);
  EXPECT_DOUBLE_EQ(seconds(CollectiveAlgorithm::kDirect), 4 * 15000);
  what.hosts = 16;
  EXPECT_FALSE(
      collective_steps({.algorithm = CollectiveAlgorithm::kByHost, .ranks = 16, .hosts = 16}).ok());
  EXPECT_DOUBLE_EQ(seconds(CollectiveAlgorithm::kHalving), 1875);
}

TEST(CollectiveCost, RanksThatShareCoresTakeAsManyTimesAsLong) {
  const CollectiveCase eight{.ranks = 8, .block_bytes = 1e6};
  const Network network{.latency_s = 1e-6, .bytes_per_s = 1e9};
  Network crowded = network;
  crowded.cores = 2;
  EXPECT_DOUBLE_EQ(*collective_seconds(eight, crowded), 4 * *collective_seconds(eight, network));
}

TEST(CollectiveCost, ASingleRankCostsNothing) {
  constexpr auto kLast = static_cast<int>(CollectiveKind::kAllToAll);
  for (int kind = 0; kind <= kLast; ++kind) {
    for (int algorithm = 0; algorithm < kCollectiveAlgorithms; ++algorithm) {
      const auto steps = collective_steps({.kind = static_cast<CollectiveKind>(kind),
                                           .algorithm = static_cast<CollectiveAlgorithm>(algorithm),
                                           .ranks = 1,
                                           .block_bytes = 100});
      if (!steps.ok()) continue;
      EXPECT_EQ(steps->network.steps, 0);
      EXPECT_EQ(steps->network.bytes, 0);
    }
  }
}

TEST(CollectiveCost, LatencyDecidesForSmallBlocksAndBandwidthForLargeOnes) {
  const Network network{.latency_s = 10e-6, .bytes_per_s = 10e9};
  const auto fastest = [&](int64_t ranks, double bytes) {
    return fastest_algorithm({.ranks = ranks, .block_bytes = bytes}, network);
  };
  EXPECT_EQ(fastest(2, 8), CollectiveAlgorithm::kDirect);
  EXPECT_EQ(fastest(1024, 8), CollectiveAlgorithm::kHalving);
  EXPECT_EQ(fastest(1024, 1e9), CollectiveAlgorithm::kHalving);
  // Not a power of two: halving sends two additional blocks.
  EXPECT_EQ(fastest(1000, 10e9), CollectiveAlgorithm::kRing);
  const auto broadcast = [&](double bytes) {
    return fastest_algorithm(
        {.kind = CollectiveKind::kBroadcast, .ranks = 1024, .block_bytes = bytes}, network);
  };
  EXPECT_EQ(broadcast(8), CollectiveAlgorithm::kTree);
  EXPECT_EQ(broadcast(1e9), CollectiveAlgorithm::kRing);
  EXPECT_EQ(
      fastest_algorithm({.kind = CollectiveKind::kAllToAll, .ranks = 8, .block_bytes = 8}, network),
      CollectiveAlgorithm::kDirect);
}

TEST(CollectiveCost, AFitFindsTheNetworkThatMadeTheTimes) {
  const Network truth{.latency_s = 7e-6, .bytes_per_s = 3e9, .cores = 2};
  std::vector<TimedCollective> measured;
  for (const int64_t ranks : {2, 4, 8}) {
    for (const double bytes : {64.0, 65536.0, 16e6}) {
      const CollectiveCase what{.ranks = ranks, .block_bytes = bytes};
      measured.push_back({what, *collective_seconds(what, truth)});
    }
  }
  const auto fitted = fit_network(measured, 2);
  ASSERT_TRUE(fitted.ok()) << fitted.error().message;
  EXPECT_NEAR(fitted->latency_s, truth.latency_s, 1e-12);
  EXPECT_NEAR(fitted->bytes_per_s, truth.bytes_per_s, 1.0);
}

TEST(CollectiveCost, AFitOfTimesWithoutLatencyIsNotBelowZero) {
  const std::vector<TimedCollective> measured = {{{.ranks = 2, .block_bytes = 1e3}, 0.5e-6},
                                                 {{.ranks = 2, .block_bytes = 1e6}, 2e-3}};
  const auto fitted = fit_network(measured, 0);
  ASSERT_TRUE(fitted.ok()) << fitted.error().message;
  EXPECT_EQ(fitted->latency_s, 0);
  EXPECT_GT(fitted->bytes_per_s, 0);
}

TEST(CollectiveCost, WhatCannotBeIsRefused) {
  const auto refused = [](const CollectiveCase& what) {
    const auto steps = collective_steps(what);
    EXPECT_FALSE(steps.ok());
    return steps.ok() ? std::string() : steps.error().message;
  };
  EXPECT_EQ(refused({.kind = CollectiveKind::kAllGather,
                     .algorithm = CollectiveAlgorithm::kHalving,
                     .ranks = 6,
                     .block_bytes = 1}),
            "[cost] all_gather of 6 ranks has no algorithm 'halving'");
  EXPECT_NE(refused({.ranks = 0}), "");
  EXPECT_NE(
      refused({.kind = CollectiveKind::kBroadcast, .algorithm = CollectiveAlgorithm::kDirect}), "");
  const std::vector<TimedCollective> one = {{{.ranks = 2, .block_bytes = 8}, 1e-6}};
  EXPECT_FALSE(fit_network(one, 0).ok());
  const std::vector<TimedCollective> never = {{{.ranks = 2, .block_bytes = 8}, 0}};
  EXPECT_FALSE(fit_network(never, 0).ok());
}

}  // namespace
}  // namespace lockstep
