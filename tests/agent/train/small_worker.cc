#include "tests/agent/train/small_worker.h"

#include <gtest/gtest.h>

namespace lockstep::train {

namespace {

TrainSpec small_training() {
  TrainSpec train;
  train.model = {.layers = 2, .width = 32, .heads = 2, .context = 32};
  train.data = {.validationFraction = 0.05, .seed = 3};
  train.steps = kSmallSteps;
  train.batch = {.global = 16, .micro = 2};
  // Epsilon is above the rounding errors of gradients, so that Adam does not amplify them.
  train.optimizer = {.learningRate = 5e-3, .warmupSteps = 5, .epsilon = 1e-5, .clipNorm = 0.5};
  train.bucketBytes = 32 << 10;
  train.validation = {.everySteps = 20};
  train.sample = {.tokens = 20, .prompt = "and "};
  return train;
}

}  // namespace

WorkerWorld::Options small_world(int64_t nodes, int64_t per_node) {
  return {.nodes = nodes, .per_node = per_node, .train = small_training(), .checkpoint_every = 25};
}

const WorkerWorld& undisturbed() {
  static WorkerWorld world(small_world(2));
  static const bool ran = [] {
    world.run();
    return true;
  }();
  EXPECT_TRUE(ran);
  return world;
}

void expect_same_end(const WorkerWorld& a, const WorkerWorld& b) {
  EXPECT_EQ(a.metric("loss"), b.metric("loss"));
  EXPECT_EQ(a.metric("validationLoss"), b.metric("validationLoss"));
  for (const char* file : {"model", "optimizer"}) {
    EXPECT_TRUE(a.checkpoint_bytes(kSmallSteps, file) == b.checkpoint_bytes(kSmallSteps, file))
        << file;
  }
  EXPECT_EQ(read_file(a.checkpoints() + "/sample.txt"), read_file(b.checkpoints() + "/sample.txt"));
}

}  // namespace lockstep::train
