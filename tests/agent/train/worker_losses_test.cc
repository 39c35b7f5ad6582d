// Real workers go on without a batch whose loss is not finite.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "agent/train/checkpoint/manifest.h"
#include "common/base/random.h"
#include "tests/agent/train/bad_losses.h"
#include "tests/agent/train/worker_world.h"
#include "tests/support/npy_bytes.h"

namespace lockstep::train {
namespace {

constexpr int64_t kBatch = 8;

// A table that an MLP learns at once: a target is the sum of its row. One row has this feature and
// this target instead.
struct BadRow {
  float feature = 0;
  float target = 0;
};
constexpr BadRow kNoGradient{.feature = 3e38F, .target = 0};  // nothing is finite
constexpr BadRow kLossAlone{.feature = 0, .target = 3e38F};   // its square is not finite

// The rows from kBadRow on are bad, and go on at the first one.
DataSpec table_with(const BadRow& bad, const TemporaryFolder& folder, int64_t bad_rows = 1) {
  constexpr int64_t kRows = 1024;
  constexpr int64_t kBadRow = 500;
  Random random(6);
  std::vector<float> features, targets;
  for (int64_t i = 0; i < kRows; ++i) {
    float sum = 0;
    for (int64_t j = 0; j < 4; ++j) {
      features.push_back(static_cast<float>(random.below(201)) / 100 - 1);
      sum += features.back();
    }
    const bool is_bad = (i + kRows - kBadRow) % kRows < bad_rows;
    if (is_bad) features.back() = bad.feature;
    targets.push_back(is_bad ? bad.target : sum);
  }
  return {.features = folder.write("features", npy_array("<f4", "(1024, 4)", features)),
          .targets = folder.write("targets", npy_array("<f4", "(1024, 1)", targets))};
}

WorkerWorld::Options regression(const DataSpec& data, const LossRules& rules) {
  WorkerWorld::Options options{.nodes = 2, .checkpoint_every = 5, .checkpoint_keep = 1000};
  options.train.model = {
      .family = kMlp, .inputs = 4, .hidden = {16}, .outputs = 1, .task = "regression"};
  options.train.data = data;
  options.train.steps = 1024 / kBatch;
  options.train.batch = {.global = kBatch, .micro = 2};
  options.train.optimizer = {.learningRate = 1e-2, .warmupSteps = 2};
  options.change = [rules](WorkerConfig& config) { config.losses = rules; };
  return options;
}

class NotFiniteTest : public testing::TestWithParam<std::string> {
 protected:
  WorkerWorld::Options options(const LossRules& rules, const BadRow& bad = kNoGradient) {
    WorkerWorld::Options made = regression(table_with(bad, folder_), rules);
    const std::string sharding = GetParam();
    made.change_spec = [sharding](TrainingJobSpec& spec) { spec.parallelism.sharding = sharding; };
    return made;
  }

 private:
  TemporaryFolder folder_;
};

TEST_P(NotFiniteTest, FailsWithoutARule) {
  WorkerWorld world(options({}));
  world.start();
  expect_ends(world.wait(), kExitNotFinite);
}

// The state after the bad step is that of the step before.
void expect_undone(WorkerWorld& world) {
  ASSERT_NO_FATAL_FAILURE(world.run());
  const StorageNotes notes = world.storage_notes(0);
  EXPECT_EQ(notes.skips, 1);
  const int64_t bad = step_of(notes);
  ASSERT_GT(bad, 1) << world.log(0);
  EXPECT_NE(notes.skip.text().find("without this batch"), std::string::npos) << notes.skip.text();
  for (const char* part : {"model", "optimizer"}) {
    EXPECT_TRUE(world.checkpoint_bytes(bad, part) == world.checkpoint_bytes(bad - 1, part));
    EXPECT_FALSE(world.checkpoint_bytes(bad + 1, part) == world.checkpoint_bytes(bad, part));
  }
  EXPECT_LT(world.progress(0).loss.value_or(INFINITY), 0.1) << "it learnt the rest";
}

TEST_P(NotFiniteTest, GoesOnWithoutABatchThatUpdatedNothing) {
  WorkerWorld::Options all = options({.not_finite = kSkipBatch});
  all.checkpoint_every = 1;
  WorkerWorld world(all);
  expect_undone(world);
}

TEST_P(NotFiniteTest, GoesBackToTheStateInMemoryIfTheUpdateWasMade) {
  WorkerWorld::Options all = options({.not_finite = kSkipBatch}, kLossAlone);
  all.checkpoint_every = 1;
  all.memory_every = 1;
  WorkerWorld world(all);
  expect_undone(world);
}

TEST_P(NotFiniteTest, RollsBackToTheNewestCheckpoint) {
  WorkerWorld::Options all = options({.not_finite = kRollBack});
  WorkerWorld world(all);
  ASSERT_NO_FATAL_FAILURE(world.run());
  const int64_t bad = step_of(world.storage_notes(0));
  ASSERT_GT(bad, 5) << world.log(0);
  WorkerWorld::Options until_bad = options({.not_finite = kRollBack});
  until_bad.train.steps = bad;
  WorkerWorld ended(until_bad);
  ASSERT_NO_FATAL_FAILURE(ended.run());
  EXPECT_EQ(ended.storage_notes(0).skips, 1);
  const int64_t before = (bad - 1) / 5 * 5;
  for (const char* part : {"model", "optimizer"}) {
    EXPECT_TRUE(ended.checkpoint_bytes(bad, part) == ended.checkpoint_bytes(before, part));
  }
}

INSTANTIATE_TEST_SUITE_P(Shardings, NotFiniteTest,
                         testing::Values("none", "optimizer", "gradients", "parameters"),
                         [](const auto& info) { return info.param; });

// One rank, whose rules are these.
WorkerWorld::Options single(const DataSpec& data, const LossRules& rules) {
  WorkerWorld::Options options = regression(data, rules);
  options.nodes = 1;
  return options;
}

TEST(SkippedBatches, AreAtMostSixteen) {
  const TemporaryFolder folder;
  WorkerWorld world(single(table_with(kNoGradient, folder, 60), {.not_finite = kSkipBatch}));
  world.start();
  EXPECT_EQ(world.wait(), std::vector<int>{kExitNotFinite});
  EXPECT_EQ(world.storage_notes(0).skips, 16);
  EXPECT_NE(world.log(0).find(", after training went on without batches 16 times: a lower learning "
                              "rate or a longer warm-up may help"),
            std::string::npos)
      << world.log(0);
}

TEST(SkippedBatches, AreValidatedLikeTheStateBefore) {
  const TemporaryFolder folder;
  DataSpec data = table_with(kNoGradient, folder);
  data.validationFraction = 0.25;
  WorkerWorld::Options options = single(data, {.not_finite = kSkipBatch});
  options.train.steps = 96;
  options.train.validation.everySteps = 1;
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.run());
  const int64_t bad = step_of(world.storage_notes(0));
  ASSERT_GT(bad, 1) << world.log(0);
  const std::vector<double> losses = world.metric("validationLoss");
  ASSERT_EQ(std::ssize(losses), options.train.steps);
  const auto at = static_cast<size_t>(bad - 1);
  EXPECT_EQ(losses[at], losses[at - 1]);
  EXPECT_NE(losses[at + 1], losses[at]);
}

// Every step is bad. The state that is saved is that of the beginning.
TEST(SkippedBatches, AreSavedIfTheRanksAreStoppedInABadStep) {
  const TemporaryFolder folder;
  WorkerWorld::Options options =
      single(table_with(kNoGradient, folder, 1024), {.not_finite = kSkipBatch});
  options.train.model.hidden = {1024, 1024};
  options.train.batch = {.global = 512};
  options.checkpoint_every = 1;
  WorkerWorld world(options);
  world.start();
  world.wait_until(0, [](const ProgressNumbers& numbers) {
    return numbers.phase == WorkerPhase::kTraining && numbers.step >= 1;
  });
  world.kill(0, SIGTERM);
  ASSERT_EQ(world.wait(), std::vector<int>{kExitStopped}) << world.log(0);
  const int64_t stopped = world.progress(0).step.value_or(0);
  EXPECT_EQ(world.storage_notes(0).skips, stopped);
  EXPECT_TRUE(world.checkpoint_bytes(stopped, "model") == world.checkpoint_bytes(1, "model"));
  world.start();
  world.wait();
  EXPECT_EQ(world.storage_notes(0).resumed_step, stopped);
  EXPECT_EQ(world.storage_notes(0).skips, 16) << "those of the round before count";
}

// Its update, whose loss is finite, makes the weights so large that no loss is finite afterwards.
constexpr BadRow kBadUpdate{.feature = 1e8F, .target = 0};

TEST(RollBack, LeavesAStateThatIsBadItself) {
  const TemporaryFolder folder;
  WorkerWorld::Options options = single(table_with(kBadUpdate, folder), {.not_finite = kRollBack});
  options.train.optimizer = {
      .name = "sgd", .learningRate = 1e-2, .schedule = "constant", .weightDecay = 0, .clipNorm = 0};
  options.checkpoint_every = 1;
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.run());
  const StorageNotes notes = world.storage_notes(0);
  const int64_t bad = step_of(notes);
  ASSERT_GT(bad, 3) << world.log(0);
  EXPECT_EQ(notes.skips, 2) << "the state before the first bad loss has the bad update";
  EXPECT_NE(notes.skip.text().find("from the state of step " + std::to_string(bad - 3)),
            std::string::npos)
      << notes.skip.text();
  EXPECT_TRUE(world.checkpoint_bytes(bad, "model") == world.checkpoint_bytes(bad - 3, "model"));
  EXPECT_LT(world.progress(0).loss.value_or(INFINITY), 0.5) << "it learnt the rest";
}

// The round begins with a state in memory that is newer than all checkpoints.
TEST(RollBack, TellsWhereItWentOnIfTheNewestCheckpointIsCorrupt) {
  const TemporaryFolder folder;
  const DataSpec data = table_with(kNoGradient, folder);
  WorkerWorld first(single(data, {.not_finite = kSkipBatch}));
  ASSERT_NO_FATAL_FAILURE(first.run());
  const int64_t bad = step_of(first.storage_notes(0));
  ASSERT_GE(bad, 4) << "two checkpoints, and a step, come before it";
  WorkerWorld::Options options = single(data, {.not_finite = kRollBack});
  options.checkpoint_every = (bad - 2) / 2;  // the newest two are before the step before
  options.checkpoint_at_end = false;
  options.memory_every = 1;
  const auto steps = std::make_shared<int64_t>(bad - 1);
  options.train.optimizer.schedule = "constant";
  options.change = [steps](WorkerConfig& config) {
    config.losses = {.not_finite = kRollBack};
    config.train.steps = *steps;
  };
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.run());
  const std::vector<std::string> folders = world.checkpoint_folders();
  ASSERT_EQ(folders.size(), 2u);
  for (const auto& file : std::filesystem::directory_iterator(folders.back())) {
    if (file.path().filename() == kManifestName) continue;
    std::fstream stored(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    stored.seekp(static_cast<std::streamoff>(file.file_size() - 1));
    stored.put('\x7f');
  }
  *steps = bad;
  ASSERT_NO_FATAL_FAILURE(world.run());
  const StorageNotes notes = world.storage_notes(0);
  EXPECT_EQ(notes.from_memory, 1) << world.log(0);
  EXPECT_EQ(notes.skips, 1);
  EXPECT_EQ(notes.set_aside_step, 2 * options.checkpoint_every);
  EXPECT_EQ(notes.resumed_step, options.checkpoint_every) << "not where the round began";
}

// The controller may send ranks of one round the rules before an edit and those after it.
TEST(LossRulesOfARound, AreThoseOfRankZero) {
  const TemporaryFolder folder;
  WorkerWorld::Options options =
      regression(table_with(kNoGradient, folder), {.not_finite = kSkipBatch});
  options.change = [](WorkerConfig& config) {
    if (config.rank == 0) config.losses = {.not_finite = kSkipBatch};
  };
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_EQ(world.storage_notes(0).skips, 1);
}

}  // namespace
}  // namespace lockstep::train
