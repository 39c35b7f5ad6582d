// Whole workers that train an MLP on the table of examples/mlp.yaml.
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <string>

#include "tests/agent/train/worker_world.h"

namespace lockstep::train {
namespace {

constexpr int64_t kSteps = 100;

WorkerWorld::Options table_world(int64_t nodes, int64_t per_node = 1) {
  const std::string data = LOCKSTEP_SOURCE_DIR "/examples/data/breast_cancer_";
  TrainSpec train;
  train.model = {.family = kMlp, .inputs = 30, .hidden = {32, 16}, .outputs = 2};
  train.data = {.features = data + "features.npy",
                .targets = data + "targets.npy",
                .validationFraction = 0.2,
                .seed = 3};
  train.steps = kSteps;
  train.batch = {.global = 32, .micro = 4};
  // Epsilon is above the rounding errors of gradients, so that Adam does not amplify them.
  train.optimizer = {.learningRate = 3e-3, .warmupSteps = 5, .epsilon = 1e-5};
  train.validation = {.everySteps = 50};
  return {.nodes = nodes, .per_node = per_node, .train = train};
}

TEST(MlpWorker, LearnsTheTableAndReportsItsAccuracy) {
  WorkerWorld world(table_world(1));
  ASSERT_NO_FATAL_FAILURE(world.run());
  const std::vector<double> losses = world.metric("loss");
  ASSERT_EQ(losses.size(), static_cast<size_t>(kSteps));
  EXPECT_NEAR(losses.front(), std::log(2.0), 0.2);
  EXPECT_LT(losses.back(), 0.1);
  // Held back are 114 rows.
  const double right = 114 * world.metric("validationAccuracy").back();
  EXPECT_NEAR(right, std::round(right), 1e-9);
  EXPECT_GE(right, 110);
  const ProgressNumbers numbers = world.progress(0);
  EXPECT_EQ(numbers.validation_accuracy, world.metric("validationAccuracy").back());
  EXPECT_EQ(numbers.samples, kSteps * 32);
  EXPECT_GT(numbers.samples_per_second, 0);
  EXPECT_FALSE(numbers.tokens);
  EXPECT_FALSE(numbers.tokens_per_second);
}

TEST(MlpWorker, OfAnyWorldSizeLearnsTheSame) {
  WorkerWorld one(table_world(1));
  ASSERT_NO_FATAL_FAILURE(one.run());
  for (const auto& [nodes, per_node] : {std::pair(2, 1), std::pair(2, 2)}) {
    WorkerWorld more(table_world(nodes, per_node));
    ASSERT_NO_FATAL_FAILURE(more.run());
    for (const char* name : {"loss", "validationLoss"}) {
      const std::vector<double> a = one.metric(name);
      const std::vector<double> b = more.metric(name);
      ASSERT_EQ(a.size(), b.size());
      for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(b[i], a[i], 1e-5) << name << i;
    }
    EXPECT_EQ(more.metric("validationAccuracy"), one.metric("validationAccuracy"));
  }
}

TEST(MlpWorker, GoesOnAfterAKillWithTheSameBits) {
  WorkerWorld::Options options = table_world(2);
  options.train.steps = 2000;
  options.checkpoint_every = 200;
  WorkerWorld undisturbed(options);
  ASSERT_NO_FATAL_FAILURE(undisturbed.run());
  WorkerWorld killed(options);
  killed.start();
  killed.wait_until(0, [](const ProgressNumbers& numbers) { return numbers.step > 250; });
  killed.kill(1, SIGKILL);
  EXPECT_EQ(killed.wait()[1], 128 + SIGKILL) << "it was done before";
  ASSERT_NO_FATAL_FAILURE(killed.run());
  EXPECT_EQ(killed.metric("loss"), undisturbed.metric("loss"));
  EXPECT_TRUE(killed.checkpoint_file(2000, "model.safetensors") ==
              undisturbed.checkpoint_file(2000, "model.safetensors"));
}

TEST(MlpWorker, RefusesACheckpointOfAnotherModel) {
  WorkerWorld::Options options = table_world(1);
  bool is_second = false;
  options.change = [&is_second](WorkerConfig& config) {
    if (is_second) config.train.model.activation = "tanh";
  };
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.run());
  is_second = true;
  world.start();
  EXPECT_EQ(world.wait()[0], kExitBadConfig);
  EXPECT_NE(world.log(0).find("spec.train.model.activation: tanh, but the checkpoint has relu"),
            std::string::npos)
      << world.log(0);
}

}  // namespace
}  // namespace lockstep::train
