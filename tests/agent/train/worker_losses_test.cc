// Real workers go on without a batch whose loss is not finite or has a spike.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "tests/agent/train/worker_world.h"
#include "tests/support/npy_bytes.h"

namespace lockstep::train {
namespace {

constexpr int64_t kBatch = 8;
constexpr size_t kNoiseAt = 17520;  // its sample is that of step 213

// A table that an MLP learns at once: a target is the sum of its row. One row has this feature and
// this target instead.
struct BadRow {
  float feature = 0;
  float target = 0;
};
constexpr BadRow kNoGradient{.feature = 3e38F, .target = 0};  // nothing is finite
constexpr BadRow kLossAlone{.feature = 0, .target = 3e38F};   // its square is not finite

DataSpec table_with(const BadRow& bad, const TemporaryFolder& folder) {
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
    if (i == kBadRow) features.back() = bad.feature;
    targets.push_back(i == kBadRow ? bad.target : sum);
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

// Returns the step that rank 0 names: "step 7: loss ...". 0 if it names none.
int64_t step_of(const StorageNotes& notes) {
  const std::string text(notes.skip.text());
  return text.starts_with("step ") ? std::strtoll(text.c_str() + 5, nullptr, 10) : 0;
}

// Some rank ends with the code; others may notice first that it has left.
void expect_ends(const std::vector<int>& codes, int expected) {
  EXPECT_TRUE(std::ranges::find(codes, expected) != codes.end());
  for (const int code : codes) EXPECT_TRUE(code == expected || code == kExitPeerLost) << code;
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

// All but one of the samples are easy.
DataSpec text_with_noise(const TemporaryFolder& folder) {
  std::string text;
  while (text.size() < 33300) text += "ab";
  Random random(3);
  for (size_t i = 0; i < 16; ++i) text[kNoiseAt + i] = static_cast<char>(128 + random.below(128));
  return {.path = folder.write("text", text)};
}

struct SpikeLayout {
  const char* name;
  std::function<void(TrainingJobSpec&)> change;
};

class SpikeTest : public testing::TestWithParam<SpikeLayout> {
 protected:
  WorkerWorld::Options options() {
    WorkerWorld::Options made{.nodes = 2, .per_node = 2, .memory_every = 1};
    made.train.model = {.layers = 4, .width = 16, .heads = 2, .context = 16};
    made.train.data = text_with_noise(folder_);
    made.train.steps = 240;
    made.train.batch = {.global = kBatch, .micro = 1};
    made.train.optimizer = {.learningRate = 5e-3, .warmupSteps = 5};
    TrainingJobSpec spec;
    GetParam().change(spec);
    const ParallelismSpec parallelism = spec.parallelism;
    made.pipeline = parallelism.pipeline;
    made.schedule = parallelism.pipelineSchedule;
    made.change_spec = [parallelism](TrainingJobSpec& job) { job.parallelism = parallelism; };
    made.change = [](WorkerConfig& config) {
      config.losses = {.spike = kSkipBatch, .deviations = 8};
    };
    return made;
  }

 private:
  TemporaryFolder folder_;
};

// The same bits also if a rank is killed before the spike, just after it, or later.
TEST_P(SpikeTest, IsUndoneAndARunThatWasKilledEndsTheSame) {
  const WorkerWorld::Options all = options();
  WorkerWorld undisturbed(all);
  ASSERT_NO_FATAL_FAILURE(undisturbed.run());
  const StorageNotes notes = undisturbed.storage_notes(0);
  const std::vector<double> losses = undisturbed.metric("loss");
  const int64_t spike =
      std::ranges::max_element(losses.begin() + 50, losses.end()) - losses.begin() + 1;
  ASSERT_EQ(notes.skips, 1) << "the largest loss is that of step " << spike;
  EXPECT_EQ(step_of(notes), spike);

  WorkerWorld killed(all);
  for (const int64_t step : {spike - 40, spike, spike + 10}) {
    ASSERT_NO_FATAL_FAILURE(killed.start());
    killed.wait_until(1, [&](const ProgressNumbers& numbers) {
      return numbers.phase == WorkerPhase::kTraining && numbers.step >= step;
    });
    for (int64_t rank = 0; rank < killed.size(); ++rank) killed.kill(rank, SIGKILL);
    killed.wait();
  }
  ASSERT_NO_FATAL_FAILURE(killed.run());
  EXPECT_EQ(killed.storage_notes(0).from_memory, 1);
  EXPECT_EQ(killed.storage_notes(0).skips, 1);
  EXPECT_EQ(killed.metric("loss"), losses);
  for (const char* part : {"model", "optimizer"}) {
    EXPECT_TRUE(killed.checkpoint_bytes(all.train.steps, part) ==
                undisturbed.checkpoint_bytes(all.train.steps, part));
  }
}

TEST_P(SpikeTest, EndsTheJobIfTheRuleSaysSo) {
  WorkerWorld::Options all = options();
  all.change = [](WorkerConfig& config) {
    config.losses = {.spike = kFailAction, .deviations = 8};
  };
  WorkerWorld world(all);
  world.start();
  expect_ends(world.wait(), kExitLossSpike);
  EXPECT_NE(world.log(0).find("standard deviations over the mean"), std::string::npos)
      << world.log(0);
}

const SpikeLayout kSpikeLayouts[] = {
    {"Replicated", [](TrainingJobSpec&) {}},
    {"Zero3", [](TrainingJobSpec& spec) { spec.parallelism.sharding = "parameters"; }},
    {"Tensor2Zero1",
     [](TrainingJobSpec& spec) {
       spec.parallelism.tensor = 2;
       spec.parallelism.sharding = "optimizer";
     }},
    {"Pipeline2",
     [](TrainingJobSpec& spec) {
       spec.parallelism.pipeline = 2;
       spec.parallelism.pipelineSchedule = "1f1b";
     }},
};

INSTANTIATE_TEST_SUITE_P(Layouts, SpikeTest, testing::ValuesIn(kSpikeLayouts),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lockstep::train
