// Whole workers that train an MLP on the table of examples/mlp.yaml.
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <string>

#include "kernels/ops/matmul.h"
#include "tests/agent/train/table_world.h"

namespace lockstep::train {
namespace {

TEST(MlpWorker, LearnsTheTableAndReportsItsAccuracy) {
  WorkerWorld world(table_world(1));
  ASSERT_NO_FATAL_FAILURE(world.run());
  const std::vector<double> losses = world.metric("loss");
  ASSERT_EQ(losses.size(), static_cast<size_t>(kTableSteps));
  EXPECT_NEAR(losses.front(), std::log(2.0), 0.2);
  EXPECT_LT(losses.back(), 0.1);
  // Held back are 114 rows.
  const double right = 114 * world.metric("validationAccuracy").back();
  EXPECT_NEAR(right, std::round(right), 1e-9);
  EXPECT_GE(right, 110);
  const ProgressNumbers numbers = world.progress(0);
  EXPECT_EQ(numbers.validation_accuracy, world.metric("validationAccuracy").back());
  EXPECT_EQ(numbers.samples, kTableSteps * 32);
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
  EXPECT_TRUE(killed.checkpoint_bytes(2000, "model") ==
              undisturbed.checkpoint_bytes(2000, "model"));
}

TEST(MlpWorker, GoesOnToTheSameBitsWithEveryOptimizer) {
  expect_same_bits_with_every_optimizer(table_world(2));
}

// A CPU that cannot multiply bf16 computes in fp32.
TEST(MlpWorker, LearnsTheTableInBf16) {
  WorkerWorld::Options options = table_world(2);
  WorkerWorld fp32(options);
  ASSERT_NO_FATAL_FAILURE(fp32.run());
  options.train.precision = "bf16";
  WorkerWorld bf16(options);
  ASSERT_NO_FATAL_FAILURE(bf16.run());
  const bool has_bf16 = kernels::cpu_matmul_support().native_bf16;
  EXPECT_EQ(bf16.progress(0).precision, has_bf16 ? PrecisionInUse::kBf16 : PrecisionInUse::kFp32);
  EXPECT_EQ(bf16.metric("loss") != fp32.metric("loss"), has_bf16);
  EXPECT_LT(bf16.metric("loss").back(), 0.1);
  EXPECT_NEAR(bf16.metric("validationAccuracy").back(), fp32.metric("validationAccuracy").back(),
              0.02);
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
