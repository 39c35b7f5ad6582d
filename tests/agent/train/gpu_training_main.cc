// Trains on this machine's first GPU, with one rank and with several that share it.
#include <gtest/gtest.h>

#include <cstdio>

#include "kernels/device/device.h"

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;  // SKIP_RETURN_CODE of the test
  testing::InitGoogleTest(&argc, argv);
  if (lockstep::kernels::device_count(lockstep::kernels::DeviceType::kCuda) == 0) {
    std::printf("skipped, no CUDA device\n");
    return kSkipped;
  }
  return RUN_ALL_TESTS();
}
