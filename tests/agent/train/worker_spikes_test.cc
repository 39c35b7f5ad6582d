// Real workers go on without a batch whose loss has a spike, in many layouts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "tests/agent/train/bad_losses.h"
#include "tests/agent/train/worker_world.h"

namespace lockstep::train {
namespace {

constexpr size_t kNoiseAt = 17520;  // its sample is that of this step
constexpr int64_t kNoiseStep = 213;

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
  int64_t nodes = 2;
  int64_t per_node = 2;
};

class SpikeTest : public testing::TestWithParam<SpikeLayout> {
 protected:
  WorkerWorld::Options options() {
    WorkerWorld::Options made{
        .nodes = GetParam().nodes, .per_node = GetParam().per_node, .memory_every = 1};
    made.train.model = {.layers = 4, .width = 16, .heads = 2, .context = 16};
    made.train.data = text_with_noise(folder_);
    made.train.steps = 240;
    made.train.batch = {.global = 8, .micro = 1};
    made.train.optimizer = {.learningRate = 5e-3, .warmupSteps = 5};
    TrainingJobSpec spec;
    GetParam().change(spec);
    const ParallelismSpec parallelism = spec.parallelism;
    made.pipeline = parallelism.pipeline;
    made.schedule = parallelism.pipelineSchedule;
    made.change_spec = [parallelism](TrainingJobSpec& job) { job.parallelism = parallelism; };
    made.change = rules(kSkipBatch);
    return made;
  }
  static std::function<void(WorkerConfig&)> rules(const char* action) {
    return [action](WorkerConfig& config) { config.losses = {.spike = action, .deviations = 8}; };
  }
  // Runs a job that ends with the step of the spike, and expects the state of step `from` then.
  void expect_state_of(int64_t from, WorkerWorld::Options all) {
    all.train.steps = kNoiseStep;
    all.checkpoint_keep = 1000;
    WorkerWorld world(all);
    ASSERT_NO_FATAL_FAILURE(world.run());
    EXPECT_EQ(step_of(world.storage_notes(0)), kNoiseStep) << world.log(0);
    EXPECT_EQ(world.storage_notes(0).skips, 1);
    for (const char* part : {"model", "optimizer"}) {
      EXPECT_TRUE(world.checkpoint_bytes(kNoiseStep, part) == world.checkpoint_bytes(from, part));
    }
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
  all.change = rules(kFailAction);
  WorkerWorld world(all);
  world.start();
  expect_ends(world.wait(), kExitLossSpike);
  EXPECT_NE(world.log(0).find("standard deviations over the mean"), std::string::npos)
      << world.log(0);
}

class RolledBackSpike : public SpikeTest {};

TEST_P(RolledBackSpike, LeavesTheStateOfTheCheckpoint) {
  WorkerWorld::Options all = options();
  all.change = rules(kRollBack);
  all.memory_every = 0;
  all.checkpoint_every = 100;
  expect_state_of(200, all);
}

class SkippedSpike : public SpikeTest {};

TEST_P(SkippedSpike, LeavesTheStateOfTheStepBefore) {
  WorkerWorld::Options all = options();
  all.checkpoint_every = 53;
  expect_state_of(kNoiseStep - 1, all);
}

class ElasticSpike : public SpikeTest {};

// Three ranks, whose shares of the batch differ, then two.
TEST_P(ElasticSpike, StaysSkippedInAnotherWorld) {
  WorkerWorld::Options all = options();
  all.checkpoint_every = 53;
  WorkerWorld world(all);
  ASSERT_NO_FATAL_FAILURE(world.start());
  world.wait_until(0, [](const ProgressNumbers& numbers) {
    return numbers.phase == WorkerPhase::kTraining && numbers.step > kNoiseStep;
  });
  for (int64_t rank = 0; rank < world.size(); ++rank) world.kill(rank, SIGKILL);
  world.wait();
  world.change_nodes({0, 1});
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_EQ(world.storage_notes(0).skips, 1) << world.log(0);
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

std::string name_of(const testing::TestParamInfo<SpikeLayout>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Layouts, SpikeTest, testing::ValuesIn(kSpikeLayouts), name_of);

std::function<void(TrainingJobSpec&)> shards(const char* sharding) {
  return [sharding](TrainingJobSpec& spec) { spec.parallelism.sharding = sharding; };
}

std::function<void(TrainingJobSpec&)> in_stages(const char* schedule) {
  return [schedule](TrainingJobSpec& spec) {
    spec.parallelism.pipeline = 2;
    spec.parallelism.pipelineSchedule = schedule;
    if (std::string(schedule) == "interleaved") spec.parallelism.virtualStages = 2;
  };
}

void in_three_dimensions(TrainingJobSpec& spec) {
  in_stages("1f1b")(spec);
  spec.parallelism.tensor = 2;
  spec.parallelism.sharding = "optimizer";
}

void offloaded(TrainingJobSpec& spec) {
  spec.parallelism.sharding = "parameters";
  spec.parallelism.offload = "optimizer";
}

const SpikeLayout kRolledBack[] = {
    {"Replicated", [](TrainingJobSpec&) {}, 2, 1},
    {"Zero1", shards("optimizer"), 2, 1},
    {"Zero2", shards("gradients"), 2, 1},
    {"Zero3", shards("parameters"), 2, 1},
    {"Tensor2", [](TrainingJobSpec& spec) { spec.parallelism.tensor = 2; }, 1, 2},
    {"GPipe", in_stages("gpipe"), 2, 1},
    {"OneFOneB", in_stages("1f1b"), 2, 1},
    {"Interleaved", in_stages("interleaved"), 2, 1},
    {"ZeroBubble", in_stages("zerobubble"), 2, 1},
    {"ThreeDimensions", in_three_dimensions, 2, 4}};
INSTANTIATE_TEST_SUITE_P(Layouts, RolledBackSpike, testing::ValuesIn(kRolledBack), name_of);

const SpikeLayout kElastic{"ThreeThenTwo", [](TrainingJobSpec&) {}, 3, 1};
INSTANTIATE_TEST_SUITE_P(Layouts, ElasticSpike, testing::Values(kElastic), name_of);

const SpikeLayout kSkipped[] = {{"OneRank", [](TrainingJobSpec&) {}, 1, 1},
                                {"Offloaded", offloaded, 2, 1},
                                {"Interleaved", in_stages("interleaved"), 2, 1},
                                {"ZeroBubble", in_stages("zerobubble"), 2, 1},
                                {"Elastic", [](TrainingJobSpec&) {}, 3, 1}};
INSTANTIATE_TEST_SUITE_P(Layouts, SkippedSpike, testing::ValuesIn(kSkipped), name_of);

}  // namespace
}  // namespace lockstep::train
