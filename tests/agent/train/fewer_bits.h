#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tests/agent/train/worker_world.h"

namespace lockstep::train {

// Trains a job with servers in fewer bits, each way and both: other losses, and a validation loss
// that is this near to that in fp32.
inline void expect_near_with_fewer_bits(WorkerWorld::Options job, double near) {
  WorkerWorld plain(job);
  ASSERT_NO_FATAL_FAILURE(plain.run());
  struct Kind {
    const char* push;
    const char* pull;
  };
  for (const Kind& kind : {Kind{"bf16", "fp32"}, Kind{"fp32", "bf16"}, Kind{"int8", "int8"}}) {
    SCOPED_TRACE(std::string(kind.push) + " " + kind.pull);
    job.servers->pushPrecision = kind.push;
    job.servers->pullPrecision = kind.pull;
    WorkerWorld world(job);
    ASSERT_NO_FATAL_FAILURE(world.run());
    EXPECT_NE(world.metric("loss"), plain.metric("loss"));
    EXPECT_NEAR(world.metric("validationLoss").back(), plain.metric("validationLoss").back(), near);
  }
}

}  // namespace lockstep::train
