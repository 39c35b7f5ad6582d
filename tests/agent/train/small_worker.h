#pragma once

#include "tests/agent/train/worker_world.h"

// The small job for tests of whole workers; it learns a text in a few seconds.
namespace lockstep::train {

inline constexpr int64_t kSmallSteps = 60;

WorkerWorld::Options small_world(int64_t nodes, int64_t per_node = 1);

// Returns the result of two undisturbed processes, run once for all tests.
const WorkerWorld& undisturbed();

// Compares losses, the last checkpoint and the sample, bit for bit.
void expect_same_end(const WorkerWorld& a, const WorkerWorld& b);

}  // namespace lockstep::train
