// Whole workers that train a convolutional network on the digits of examples/digits.yaml.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tests/agent/train/digits_world.h"

namespace lockstep::train {
namespace {

// After the first step a rounding error may switch a ReLU, and then the gradient jumps.
void expect_same(const WorkerWorld& one, const WorkerWorld& more) {
  constexpr double kLimit = 1e-5;
  constexpr double kJump = 1e-2;
  for (const std::string name : {"loss", "gradientNorm", "validationLoss"}) {
    const std::vector<double> a = one.metric(name);
    const std::vector<double> b = more.metric(name);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      const double limit = name == "gradientNorm" && i > 0 ? kJump : kLimit;
      EXPECT_NEAR(b[i], a[i], limit * a[i]) << name << i;
    }
  }
}

TEST(ConvnetWorker, ReportsItsAccuracies) {
  WorkerWorld world(digits_world(1));
  ASSERT_NO_FATAL_FAILURE(world.run());
  const std::vector<double> losses = world.metric("loss");
  ASSERT_EQ(losses.size(), static_cast<size_t>(kDigitsSteps));
  EXPECT_LT(losses.back(), losses.front());
  const ProgressNumbers numbers = world.progress(0);
  const double top1 = world.metric("validationAccuracy").back();
  const double top5 = world.metric("validationTop5Accuracy").back();
  EXPECT_EQ(numbers.validation_accuracy, top1);
  EXPECT_EQ(numbers.validation_top5_accuracy, top5);
  EXPECT_GE(top5, top1);
  EXPECT_GT(top5, 0.4);
  EXPECT_NEAR(359 * top5, std::round(359 * top5), 1e-9) << "held back are 359 images";
}

TEST(ConvnetWorker, OfAnyWorldSizeLearnsTheSame) {
  WorkerWorld one(digits_world(1));
  ASSERT_NO_FATAL_FAILURE(one.run());
  for (const auto& [nodes, per_node] : {std::pair(2, 1), std::pair(2, 2)}) {
    WorkerWorld more(digits_world(nodes, per_node));
    ASSERT_NO_FATAL_FAILURE(more.run());
    expect_same(one, more);
  }
}

TEST(ConvnetWorker, WithLocalStatisticsLearnsSomethingElse) {
  WorkerWorld one(digits_world(1));
  ASSERT_NO_FATAL_FAILURE(one.run());
  WorkerWorld::Options options = digits_world(2);
  options.train.model.batchNorm = "local";
  WorkerWorld local(options);
  ASSERT_NO_FATAL_FAILURE(local.run());
  EXPECT_GT(std::abs(local.metric("loss").back() - one.metric("loss").back()), 1e-3);
}

// The ranks of each sharding have the same values, the running statistics among them.
TEST(ConvnetWorker, LearnsTheSameWithAnySharding) {
  WorkerWorld one(digits_world(1));
  ASSERT_NO_FATAL_FAILURE(one.run());
  for (const char* sharding : {"optimizer", "gradients", "parameters"}) {
    WorkerWorld::Options options = digits_world(2);
    options.change_spec = [=](TrainingJobSpec& spec) { spec.parallelism.sharding = sharding; };
    WorkerWorld sharded(options);
    ASSERT_NO_FATAL_FAILURE(sharded.run());
    expect_same(one, sharded);
  }
}

WorkerWorld::Options staged_world(const char* schedule, int64_t nodes, int64_t stages) {
  WorkerWorld::Options options = digits_world(nodes);
  options.train.batch.micro = 32 / (nodes / stages) / 4;  // four micro-batches on each rank
  if (std::string(schedule) == "pipedream") options.train.optimizer.clipNorm = 0;
  options.change_spec = [=](TrainingJobSpec& spec) {
    spec.parallelism.pipeline = stages;
    if (stages > 1) spec.parallelism.pipelineSchedule = schedule;
    if (std::string(schedule) == "interleaved") spec.parallelism.virtualStages = 2;
  };
  return options;
}

// Data-parallel ranks normalise together, so the micro-batches of all layouts are the same.
TEST(ConvnetWorker, LearnsTheSameInStagesWithAnySchedule) {
  WorkerWorld one(staged_world("1f1b", 1, 1));
  ASSERT_NO_FATAL_FAILURE(one.run());
  for (const char* schedule : {"naive", "gpipe", "1f1b", "zerobubble", "interleaved"}) {
    SCOPED_TRACE(schedule);
    WorkerWorld staged(staged_world(schedule, 2, 2));
    ASSERT_NO_FATAL_FAILURE(staged.run());
    expect_same(one, staged);
  }
  WorkerWorld mesh(staged_world("1f1b", 4, 2));
  ASSERT_NO_FATAL_FAILURE(mesh.run());
  expect_same(one, mesh);
}

TEST(ConvnetWorker, InStagesGoesOnFromACheckpointWithTheSameBits) {
  for (const char* schedule : {"zerobubble", "pipedream"}) {
    SCOPED_TRACE(schedule);
    WorkerWorld::Options options = staged_world(schedule, 4, 2);
    options.checkpoint_every = 3;
    WorkerWorld world(options);
    ASSERT_NO_FATAL_FAILURE(world.run());
    expect_same_bits_from(world, 3);
  }
}

TEST(ConvnetWorker, GoesOnFromACheckpointWithTheSameBits) {
  WorkerWorld::Options options = digits_world(2);
  options.checkpoint_every = 3;
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.run());
  expect_same_bits_from(world, 3);
}

}  // namespace
}  // namespace lockstep::train
