#pragma once

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::train {

// Compares values by step; the tolerance is relative.
inline void expect_near(const std::vector<double>& found, const std::vector<double>& expected,
                        double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i], tolerance * expected[i]) << "step " << i + 1;
  }
}

}  // namespace lockstep::train
