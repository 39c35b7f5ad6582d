// A whole worker that chooses its attention, on an emulated CUDA device with cuDNN, which only
// supports bf16.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/agent/train/worker_world.h"

namespace lockstep::train {
namespace {

WorkerWorld::Options options_with(const std::string& attention) {
  TrainSpec train;
  train.model = {.layers = 1, .width = 32, .heads = 2, .context = 16};
  train.data = {.validationFraction = 0};
  train.steps = 1;
  train.batch = {.global = 2, .micro = 2};
  train.attention = attention;
  return {.train = train, .checkpoint_every = 1, .gpu = 0, .program = "tests/emulated_worker"};
}

bool says(const WorkerWorld& world, const std::string& words) {
  return world.log(0).find(words) != std::string::npos;
}

TEST(AttentionOfAWorker, ThatIsNamedAndCanNotBeEndsTheJobWithWords) {
  WorkerWorld world(options_with("cudnn"));
  ASSERT_NO_FATAL_FAILURE(world.start());
  EXPECT_EQ(world.wait(), std::vector<int>{kExitBadConfig});
  EXPECT_TRUE(
      says(world, "spec.train.attention: cudnn must work on every rank, but rank 0 cannot use it"))
      << world.log(0);
  EXPECT_TRUE(says(world, "expected precision bf16, got fp32")) << world.log(0);
}

TEST(AttentionOfAWorker, ByAutoIsOurOwnWhereCudnnCanNotAndIsKeptWithTheCheckpoints) {
  WorkerWorld world(options_with("auto"));
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_TRUE(says(world, "cuDNN attention is not available")) << world.log(0);
  EXPECT_TRUE(says(world, "attention=own")) << world.log(0);
  EXPECT_EQ(read_file(world.checkpoints() + "/attention"), "own");
}

// Heads of 64 values, in bf16.
WorkerWorld::Options that_cudnn_takes(const std::string& attention) {
  WorkerWorld::Options options = options_with(attention);
  options.train.model.width = 128;
  options.train.precision = "bf16";
  options.train.steps = 3;
  return options;
}

TEST(AttentionOfAWorker, ByCudnnLearnsWhatOurOwnLearns) {
  WorkerWorld own(that_cudnn_takes("own")), cudnn(that_cudnn_takes("cudnn"));
  for (WorkerWorld* world : {&own, &cudnn}) ASSERT_NO_FATAL_FAILURE(world->run());
  EXPECT_TRUE(says(own, "attention=own")) << own.log(0);
  EXPECT_TRUE(says(cudnn, "attention=cudnn")) << cudnn.log(0);
  const std::vector<double> expected = own.metric("loss"), found = cudnn.metric("loss");
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 2e-3);
}

TEST(AttentionOfAWorker, ByAutoIsMeasuredOnceAndThenStays) {
  WorkerWorld world(that_cudnn_takes("auto"));
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_TRUE(says(world, "attention measured")) << world.log(0);
  const std::string chosen = read_file(world.checkpoints() + "/attention");
  EXPECT_TRUE(says(world, "attention=" + chosen)) << world.log(0);

  // The file ends with a newline, as after saving it in an editor. The stored choice is used,
  // whatever was measured.
  const std::string other = chosen == "own" ? "cudnn" : "own";
  std::ofstream(world.checkpoints() + "/attention") << other << "\n";
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_TRUE(says(world, "using the attention chosen when this run began")) << world.log(0);
  EXPECT_TRUE(says(world, "attention=" + other)) << world.log(0);
}

TEST(AttentionOfAWorker, ThatNobodyCanReadIsMeasuredAnewAndWritten) {
  WorkerWorld world(that_cudnn_takes("auto"));
  std::filesystem::create_directories(world.checkpoints());
  std::ofstream(world.checkpoints() + "/attention") << "neither";
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_TRUE(says(world, "attention=" + read_file(world.checkpoints() + "/attention")))
      << world.log(0);
}

TEST(AttentionOfAWorker, IsNotMeasuredAnewWhereTheFileCanNotBeRead) {
  WorkerWorld world(that_cudnn_takes("auto"));
  std::filesystem::create_directories(world.checkpoints());
  std::ofstream(world.checkpoints() + "/attention") << std::string(100, 'x');
  ASSERT_NO_FATAL_FAILURE(world.start());
  EXPECT_NE(world.wait(), std::vector<int>{0});
  EXPECT_TRUE(says(world, world.checkpoints() + "/attention")) << world.log(0);
}

TEST(AttentionOfAWorker, ThatWasChosenFirstStaysWrittenWhereAStartCanNotTakeIt) {
  WorkerWorld world(options_with("auto"));
  std::filesystem::create_directories(world.checkpoints());
  std::ofstream(world.checkpoints() + "/attention") << "cudnn";
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_TRUE(says(world, "attention=own")) << world.log(0);
  EXPECT_EQ(read_file(world.checkpoints() + "/attention"), "cudnn");
}

}  // namespace
}  // namespace lockstep::train
