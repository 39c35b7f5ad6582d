#pragma once

#include <cstdint>

#include "agent/comm/communicator.h"
#include "bench/comm/settings.h"
#include "common/base/result.h"

namespace lockstep::bench {

// The result of measuring one operation at one size, in-place or out-of-place.
struct Measurement {
  int64_t count = 0;  // elements per block
  int64_t bytes = 0;  // the larger of a rank's input and output
  int iterations = 0;
  // Every sample is the time of the slowest rank.
  double min_us = 0;
  double p50_us = 0;
  double p99_us = 0;
  int64_t wrong = 0;         // wrong elements, on all ranks together
  double bandwidth = 0;      // bytes per second: bytes / p50
  double bus_bandwidth = 0;  // what each link carries (nccl-tests, doc/PERFORMANCE.md)
};

// The operation to measure.
struct MeasureOptions {
  comm::Collective operation = comm::Collective::kAllReduce;
  int64_t bytes = 0;
  bool in_place = false;
  kernels::Device device = {};  // of the buffers
};
// Collective: every rank of `comm` calls it. The communicator must work on memory of
// options.device. Checks the result of one operation against a plain loop, warms up, then times
// each operation separately. If the operation has a root, a barrier precedes it.
Result<Measurement> measure(comm::Communicator& comm, const BenchSettings& settings,
                            const MeasureOptions& options);

}  // namespace lockstep::bench
