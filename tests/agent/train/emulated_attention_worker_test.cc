// A whole worker that is to choose its attention, on a CUDA device that the CPU plays, in fp32,
// where cuDNN can't. (In bf16 a worker first measures products that are too large to be played.)
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/agent/train/worker_world.h"

namespace lockstep {
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
  EXPECT_TRUE(says(world, "spec.train.attention: cudnn expected of every rank, rank 0 can't"))
      << world.log(0);
  EXPECT_TRUE(says(world, "precision bf16 expected, got fp32")) << world.log(0);
}

TEST(AttentionOfAWorker, ByAutoIsOurOwnWhereCudnnCanNotAndIsKeptWithTheCheckpoints) {
  WorkerWorld world(options_with("auto"));
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_TRUE(says(world, "attention by cuDNN is not to be had")) << world.log(0);
  EXPECT_TRUE(says(world, "attention=own")) << world.log(0);
  EXPECT_EQ(read_file(world.checkpoints() + "/attention"), "own");
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
}  // namespace lockstep
