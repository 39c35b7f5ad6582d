#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "kernels/device/device.h"
#include "kernels/ops/attention.h"

namespace lockstep::bench {

// Options of bench_kernels; bench_kernels.cc documents its flags.
struct KernelOptions {
  bool tiny = false;
  kernels::DeviceType device = kernels::DeviceType::kCpu;
  kernels::DType dtype = kernels::DType::kBf16;  // of activations on a GPU
  int threads = 1;
  double seconds = 0.3;
  std::string filter;
  std::vector<kernels::AttentionShape> attention;        // measured instead of the models' rows
  kernels::AttentionBy by = kernels::AttentionBy::kOwn;  // the kernels that attention rows call
  std::string json;                                      // output file; empty: none
};

// kInvalid, naming the flag, for an unknown flag or a bad value.
Result<KernelOptions> parse_kernel_options(int argc, char** argv);

}  // namespace lockstep::bench
