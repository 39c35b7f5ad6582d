#pragma once

#include <string>

#include "tests/agent/train/worker_world.h"

namespace lockstep::train {

inline constexpr int64_t kTableSteps = 100;

// Workers that train an MLP on the table of examples/mlp.yaml.
inline WorkerWorld::Options table_world(int64_t nodes, int64_t per_node = 1) {
  const std::string data = LOCKSTEP_SOURCE_DIR "/examples/data/breast_cancer_";
  TrainSpec train;
  train.model = {.family = kMlp, .inputs = 30, .hidden = {32, 16}, .outputs = 2};
  train.data = {.features = data + "features.npy",
                .targets = data + "targets.npy",
                .validationFraction = 0.2,
                .seed = 3};
  train.steps = kTableSteps;
  train.batch = {.global = 32, .micro = 4};
  // Epsilon is above the rounding errors of gradients, so that Adam does not amplify them.
  train.optimizer = {.learningRate = 3e-3, .warmupSteps = 5, .epsilon = 1e-5};
  train.validation = {.everySteps = 50};
  return {.nodes = nodes, .per_node = per_node, .train = train};
}

}  // namespace lockstep::train
