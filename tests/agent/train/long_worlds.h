#pragma once

#include <cstdint>
#include <cstdlib>

#include "tests/agent/train/click_world.h"
#include "tests/agent/train/table_world.h"
#include "tests/agent/train/worker_world.h"

namespace lockstep::train {

// Jobs that train for long enough to lose processes meanwhile. The caller gives them their servers.
inline WorkerWorld::Options long_click_world(const TemporaryFolder& folder) {
  WorkerWorld::Options options = click_world(folder, kFactorizationMachine);
  options.train.steps = 240;
  options.train.validation.everySteps = 120;
  options.train.batch.global = 64;
  options.checkpoint_every = 60;
  return options;
}
inline WorkerWorld::Options long_table_world() {
  WorkerWorld::Options options = table_world(1);
  options.train.steps = 200;
  options.train.validation.everySteps = 50;
  options.train.optimizer.clipNorm = 0;
  options.checkpoint_every = 40;
  return options;
}

// Returns the number in this environment variable, if there is one.
inline uint64_t number_from(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace lockstep::train
