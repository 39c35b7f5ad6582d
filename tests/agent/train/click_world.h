#pragma once

#include <gtest/gtest.h>

#include <string>

#include "agent/train/clicks/click_generator.h"
#include "tests/agent/train/worker_world.h"

namespace lockstep::train {

inline constexpr int64_t kClickRows = 2000;

// Two workers of two servers that train a model of this family on a log of clicks in the folder.
inline WorkerWorld::Options click_world(const TemporaryFolder& folder, const std::string& family) {
  const std::string path = folder.file("clicks.tsv");
  const auto made = generate_clicks({.path = path, .rows = kClickRows, .keys = 3000, .seed = 2});
  EXPECT_TRUE(made.ok()) << made.error().message;
  TrainSpec train;
  train.model.family = family;
  if (family != kLogisticRegression) train.model.factors = 4;
  train.data.path = path;
  train.data.format = "criteo";
  train.data.validationFraction = 0.1;
  train.steps = 24;
  train.batch.global = 128;
  train.optimizer = {.name = "adagrad",
                     .learningRate = 0.1,
                     .schedule = "linear",
                     .weightDecay = 0,
                     .clipNorm = 0};
  train.validation.everySteps = 12;
  return {.nodes = 2,
          .train = train,
          .checkpoint_every = 8,
          .servers = ParameterServersSpec{.nodes = 2}};
}

}  // namespace lockstep::train
