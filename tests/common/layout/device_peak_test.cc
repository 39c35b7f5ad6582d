#include "common/layout/device_peak.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep {
namespace {

TEST(FlopsRatio, IsKnownWhereBothSidesAre) {
  EXPECT_EQ(flops_ratio(4e14, 1e15), 0.4);
  for (const double unknown : {0.0, std::nan(""), -1.0}) {
    EXPECT_FALSE(flops_ratio(4e14, unknown));
    EXPECT_FALSE(flops_ratio(unknown, 1e15));
  }
}

}  // namespace
}  // namespace lockstep
