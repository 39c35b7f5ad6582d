// A whole worker that trains a convolutional network by cuDNN, on an emulated CUDA device. The last
// batch of a validation is smaller than the others, so our own kernels compute it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/agent/train/digits_world.h"

namespace lockstep::train {
namespace {

WorkerWorld::Options on_emulated_gpu(const std::string& precision = "fp32") {
  WorkerWorld::Options options = digits_world(1);
  options.gpu = 0;
  options.program = "tests/emulated_worker";
  options.train.precision = precision;
  options.train.steps = 3;
  options.train.batch = {.global = 8};
  options.train.data.validationFraction = 0.006;  // 11 images
  options.checkpoint_every = 2;
  return options;
}

bool says(const WorkerWorld& world, const std::string& words) {
  return world.log(0).find(words) != std::string::npos;
}

std::string kept(const WorkerWorld& world) {
  return read_file(world.checkpoints() + "/convolutions");
}

TEST(ConvolutionsOfAWorker, ByCudnnLearnWhatTheCpuLearnsWithTheSameBitsInEachRun) {
  WorkerWorld::Options on_cpu = on_emulated_gpu();
  on_cpu.gpu = -1;
  WorkerWorld cpu(on_cpu), cudnn(on_emulated_gpu()), again(on_emulated_gpu());
  for (WorkerWorld* world : {&cpu, &cudnn, &again}) ASSERT_NO_FATAL_FAILURE(world->run());
  EXPECT_FALSE(std::filesystem::exists(cpu.checkpoints() + "/convolutions"));
  EXPECT_FALSE(says(cpu, "cuDNN")) << cpu.log(0);
  EXPECT_TRUE(says(cudnn, "by=cudnn")) << cudnn.log(0);
  EXPECT_EQ(kept(cudnn), "cudnn");
  for (const char* name : {"loss", "validationLoss"}) {
    const std::vector<double> expected = cpu.metric(name), found = cudnn.metric(name);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_NEAR(found[i], expected[i], 1e-3 * expected[i]) << name;
    }
    EXPECT_EQ(again.metric(name), found) << name;
  }
}

TEST(ConvolutionsOfAWorker, GoOnFromACheckpointWithTheSameBits) {
  WorkerWorld world(on_emulated_gpu("bf16"));
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_TRUE(says(world, "by=cudnn")) << world.log(0);
  EXPECT_EQ(kept(world), "cudnn");
  EXPECT_FALSE(says(world, "chosen when this run began")) << world.log(0);
  expect_same_bits_from(world, 2);
  EXPECT_TRUE(says(world, "chosen when this run began")) << world.log(0);
}

TEST(ConvolutionsOfAWorker, AreNotChosenAnewWhereTheKeptChoiceCanNotBeRead) {
  WorkerWorld world(on_emulated_gpu());
  std::filesystem::create_directories(world.checkpoints());
  std::ofstream(world.checkpoints() + "/convolutions") << std::string(100, 'x');
  ASSERT_NO_FATAL_FAILURE(world.start());
  EXPECT_NE(world.wait(), std::vector<int>{0});
  EXPECT_TRUE(says(world, world.checkpoints() + "/convolutions")) << world.log(0);
}

}  // namespace
}  // namespace lockstep::train
