// A whole worker on a CUDA device that the CPU plays, beside one on the CPU: the same losses, a
// checkpoint that either goes on from, and what it says of its device.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/agent/train/worker_world.h"

namespace lockstep {
namespace {

constexpr int64_t kSteps = 6;

WorkerWorld::Options tiny(bool on_gpu) {
  TrainSpec train;
  train.model = {.layers = 1, .width = 32, .heads = 2, .context = 16};
  train.data = {.validationFraction = 0.01};
  train.steps = kSteps;
  train.batch = {.global = 4, .micro = 2};
  train.optimizer = {.learningRate = 5e-3, .epsilon = 1e-5, .clipNorm = 0.5};
  train.sample = {.tokens = 4, .prompt = "and ", .temperature = 0};
  WorkerWorld::Options options{.train = train, .checkpoint_every = 3};
  if (!on_gpu) return options;
  options.gpu = 0;
  options.program = "tests/emulated_worker";
  return options;
}

TEST(EmulatedWorker, LearnsWhatTheOneOnTheCpuLearnsAndGoesOnFromItsCheckpoint) {
  WorkerWorld cpu(tiny(false));
  ASSERT_NO_FATAL_FAILURE(cpu.run());
  WorkerWorld gpu(tiny(true));
  ASSERT_NO_FATAL_FAILURE(gpu.run());
  EXPECT_NE(gpu.log(0).find("device=emulated"), std::string::npos) << gpu.log(0);
  EXPECT_NE(cpu.log(0).find("device=CPU"), std::string::npos) << cpu.log(0);
  for (const char* name : {"loss", "gradientNorm", "validationLoss"}) {
    const std::vector<double> expected = cpu.metric(name);
    const std::vector<double> found = gpu.metric(name);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_NEAR(found[i], expected[i], 1e-5 * expected[i]) << name << i;
    }
  }
  EXPECT_EQ(read_file(gpu.checkpoints() + "/sample.txt"),
            read_file(cpu.checkpoints() + "/sample.txt"));

  // The last checkpoint is gone: the next round does the steps after the one before it again.
  const std::string end = gpu.checkpoint_file(kSteps, "model.safetensors");
  std::filesystem::remove(gpu.checkpoints() + "/step-00000006/manifest.json");
  ASSERT_NO_FATAL_FAILURE(gpu.run());
  EXPECT_NE(gpu.log(0).find("/step-00000003"), std::string::npos) << gpu.log(0);
  EXPECT_TRUE(gpu.checkpoint_file(kSteps, "model.safetensors") == end) << "the same bits";
}

// They share the one device, so gradients go by way of host memory.
TEST(EmulatedWorker, SumsTheGradientsOfTwoRanksAsTheOnesOnTheCpuDo) {
  WorkerWorld::Options options[] = {tiny(false), tiny(true)};
  for (WorkerWorld::Options& each : options) {
    each.per_node = 2;
    each.train.batch = {.global = 4, .micro = 1};
    each.train.bucketBytes = 4096;
  }
  WorkerWorld cpu(options[0]);
  ASSERT_NO_FATAL_FAILURE(cpu.run());
  WorkerWorld gpu(options[1]);
  ASSERT_NO_FATAL_FAILURE(gpu.run());
  for (const char* name : {"loss", "gradientNorm", "validationLoss"}) {
    const std::vector<double> expected = cpu.metric(name);
    const std::vector<double> found = gpu.metric(name);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_NEAR(found[i], expected[i], 1e-5 * expected[i]) << name << i;
    }
  }
}

TEST(EmulatedWorker, EndsWithWordsWhereItsGpuIsNot) {
  WorkerWorld::Options options = tiny(true);
  options.gpu = 1;
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.start());
  EXPECT_EQ(world.wait(), std::vector<int>{kExitNoDevice});
  EXPECT_NE(world.log(0).find("GPU 1, so its process should see at least 2; it sees 1."),
            std::string::npos)
      << world.log(0);
}

}  // namespace
}  // namespace lockstep
