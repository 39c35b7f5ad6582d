// Chains of servers in processes of their own, of which some die: what workers were told, and the
// servers' logs, show that no acknowledged push is lost or taken twice.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/agent/server/chaos.h"

namespace lockstep::server {
namespace {

using test::ChaosReport;
using test::ChaosSetup;

struct Run {
  const char* name;
  ChaosSetup setup;
};

class Replication : public testing::TestWithParam<Run> {};

TEST_P(Replication, KeepsEveryPushOnce) {
  const ChaosReport report = test::run_chaos(GetParam().setup);
  for (const std::string& problem : report.problems) ADD_FAILURE() << problem;
  const uint64_t least = GetParam().setup.steps * 2 * 3;
  EXPECT_GT(report.acknowledged_pushes, least);
  EXPECT_GT(report.pulls, least);
  EXPECT_GT(report.updates, least / 3);
  EXPECT_GE(report.views, 1u);
  if (GetParam().setup.cuts_connections) {
    EXPECT_GT(report.cuts, 0u);
  }
  std::printf("views %llu, cuts %llu, faults:%s\n", static_cast<unsigned long long>(report.views),
              static_cast<unsigned long long>(report.cuts), report.faults.c_str());
}

Consistency bounded(uint64_t staleness) {
  return {.kind = ConsistencyKind::kBoundedStaleness, .staleness = staleness};
}

INSTANTIATE_TEST_SUITE_P(
    Of, Replication,
    testing::Values(
        Run{"NoFaults", {.seed = 1, .consistency = bounded(2), .faults = 0}},
        Run{"Staleness0", {.seed = 2, .consistency = bounded(0)}},
        Run{"Staleness1", {.seed = 3, .consistency = bounded(1)}},
        Run{"Staleness3", {.seed = 4, .consistency = bounded(3), .cuts_connections = true}},
        Run{"Staleness10", {.seed = 5, .consistency = bounded(10)}},
        Run{"Asynchronous", {.seed = 6, .consistency = {.kind = ConsistencyKind::kAsynchronous}}},
        Run{"Synchronous", {.seed = 7, .consistency = {}}},
        Run{"TwoCopies", {.seed = 8, .consistency = bounded(3), .copies = 2, .faults = 6}},
        // Servers that are in each other's chains do not wait for each other.
        Run{"SmallWindows",
            {.seed = 525,
             .consistency = bounded(10),
             .copies = 2,
             .cuts_connections = true,
             .calls_max = 2}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lockstep::server
