#pragma once

#include "tests/agent/train/worker_world.h"

namespace lockstep::train {

inline constexpr int64_t kDigitsSteps = 6;

// A convolutional network on the digits of examples/digits.yaml, for a few steps.
inline WorkerWorld::Options digits_world(int64_t nodes, int64_t per_node = 1) {
  const std::string data = LOCKSTEP_SOURCE_DIR "/examples/data/digits_";
  TrainSpec train;
  train.model = {.preset = "resnet20", .outputs = 10};
  train.model.imageHeight = 8;
  train.model.imageWidth = 8;
  train.model.imageChannels = 1;
  train.data = {.features = data + "images.npy",
                .targets = data + "targets.npy",
                .cropPadding = 1,
                .mean = {0.3},
                .deviation = {0.36},
                .validationFraction = 0.2,
                .seed = 3};
  train.steps = kDigitsSteps;
  train.batch = {.global = 32};
  // Epsilon is above the rounding errors of gradients, so that Adam does not amplify them. The
  // steps are small, since the order of sums depends on the batch of a rank, and errors grow with a
  // step.
  train.optimizer = {.learningRate = 1e-4, .epsilon = 1e-3};
  train.validation = {.everySteps = 3};
  return {.nodes = nodes, .per_node = per_node, .train = train};
}

}  // namespace lockstep::train
