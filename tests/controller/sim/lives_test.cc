#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "common/base/log.h"
#include "tests/controller/sim/lives.h"
#include "tests/controller/sim/user_sequences.h"

namespace lockstep::sim {
namespace {

class Quiet : public ::testing::Environment {
  void SetUp() override { set_log_options({.minimum = LogLevel::kError}); }
};
const auto* const kQuiet = ::testing::AddGlobalTestEnvironment(new Quiet);

TEST(Lives, EachHasWritesToCrashAfterAndEventsToDrop) {
  for (const Life& life : all_lives()) {
    const LifeResult right = live(life, {});
    EXPECT_EQ(right.violation, "") << life.name;
    EXPECT_GE(right.writes, 8) << life.name;
    EXPECT_GE(right.batches, 8) << life.name;
  }
}

// build/bin/lives takes all of them.
TEST(Lives, ACrashAfterAnyWriteWithStaleCachesAndADroppedEventChangesNoEnd) {
  constexpr int64_t kStride = 30;
  const LivesResult result = live_all(all_lives(), 7, kStride);
  EXPECT_GE(result.lives, 50);
  for (const std::string& failed : result.failed) ADD_FAILURE() << failed;
}

// build/bin/lives --sequences takes more of them.
TEST(UserSequences, EndAsInAFreshClusterThatGetsTheLastObject) {
  constexpr uint64_t kSeeds = 60;
  size_t operations = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const SequenceResult result = run_sequence(seed);
    operations += result.operations.size();
    EXPECT_EQ(result.violation, "") << "seed " << seed;
    EXPECT_NE(result.end, "") << "seed " << seed;
  }
  EXPECT_GE(operations, 3 * kSeeds);
}

}  // namespace
}  // namespace lockstep::sim
