// Trains on this machine's first GPU, with one rank and with several that share it.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/kernels/gpu_cases.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const int code = lockstep::test::code_without_gpu();
  if (code != 0) std::printf("no training on a GPU\n");
  return code != 0 ? code : RUN_ALL_TESTS();
}
