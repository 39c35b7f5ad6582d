#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.h"
#include "common/layout/model_config.h"
#include "common/layout/sharding.h"
#include "kernels/device/device.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/blas/blas.h"
#include "kernels/ops/matmul.h"

namespace lockstep::bench {

// The flags of bench_step; bench_step.cc explains them.
struct StepOptions {
  std::string preset = "kjv";
  kernels::Precision precision = kernels::Precision::kF32;
  kernels::AttentionBy attention = kernels::AttentionBy::kOwn;
  kernels::Device device;
  int threads = 1;
  int ranks = 1;
  int64_t layers = 0;  // of the model; 0: the preset's, like the next three
  int64_t width = 0;
  int64_t heads = 0;
  int64_t vocabulary = 0;
  int64_t batch = 0;  // sequences per rank and micro-batch; 0: the preset's
  int64_t accumulate = 1;
  int64_t context = 0;  // 0: the preset's
  int warmup = 3;
  int steps = 20;
  std::string tokens;   // file of u16 token ids; empty: random tokens
  std::string weights;  // safetensors file; empty: initialised from a seed
  double rate = 1e-4;
  bool curve = false;
  std::string timeline;  // folder for a recording of all steps; empty: none
  Exchange exchange = Exchange::kAllReduce;
  bool shares_memory = false;  // the ranks communicate through shared memory, else over TCP
  int64_t peak = 8192;         // edge of the products that measure a GPU's peak; 0: not measured
  kernels::blas::AlgorithmChoice algorithms = kernels::blas::AlgorithmChoice::kFirst;
};

struct Workload {
  ModelConfig config;
  int64_t batch = 1;
  int64_t context = 1;
};

// Both return kInvalid, naming the flag, for an impossible value.
Result<StepOptions> parse_step_options(int argc, char** argv);
Result<Workload> workload_of(const StepOptions& options);

}  // namespace lockstep::bench
