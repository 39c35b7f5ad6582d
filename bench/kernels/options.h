#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "kernels/device/device.h"
#include "kernels/ops/attention.h"

namespace lockstep::bench {

// What bench_kernels measures; bench_kernels.cc says what its flags mean.
struct KernelOptions {
  bool tiny = false;
  DeviceType device = DeviceType::kCpu;
  DType dtype = DType::kBf16;  // of activations on a GPU
  int threads = 1;
  double seconds = 0.3;
  std::string filter;
  std::vector<AttentionShape> attention;  // instead of the models' rows
  AttentionBy by = AttentionBy::kOwn;     // whose kernels those rows call
  std::string json;                       // file; empty: none
};

// kInvalid, naming the flag, for what can't be.
Result<KernelOptions> parse_kernel_options(int argc, char** argv);

}  // namespace lockstep::bench
