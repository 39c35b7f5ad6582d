#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.h"
#include "common/layout/model_config.h"
#include "kernels/device/device.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/blas/blas.h"
#include "kernels/ops/matmul.h"

namespace lockstep::bench {

// What bench_step measures; bench_step.cc says what its flags mean.
struct StepOptions {
  std::string preset = "kjv";
  Precision precision = Precision::kF32;
  AttentionBy attention = AttentionBy::kOwn;
  Device device;
  int threads = 1;
  int ranks = 1;
  int64_t batch = 0;  // sequences of a rank's micro-batch; 0, and context 0: the preset's
  int64_t accumulate = 1;
  int64_t context = 0;
  int warmup = 3;
  int steps = 20;
  std::string tokens;   // u16 file; empty: random ones
  std::string weights;  // safetensors file; empty: drawn from a seed
  double rate = 1e-4;
  bool curve = false;
  int64_t peak = 8192;  // edge of the products that measure a GPU's peak; 0: it isn't
  blas::AlgorithmChoice algorithms = blas::AlgorithmChoice::kFirst;
};

struct Workload {
  ModelConfig config;
  int64_t batch = 1;
  int64_t context = 1;
};

// kInvalid, naming the flag, for what can't be.
Result<StepOptions> parse_step_options(int argc, char** argv);
Result<Workload> workload_of(const StepOptions& options);

}  // namespace lockstep::bench
