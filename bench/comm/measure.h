#pragma once

#include <cstdint>

#include "agent/comm/communicator.h"
#include "bench/comm/settings.h"
#include "common/base/result.h"

namespace lockstep {

// One operation at one size, in place or not.
struct Measurement {
  int64_t count = 0;  // elements of a block
  int64_t bytes = 0;  // of the larger side of a rank
  int iterations = 0;
  double min_us = 0;  // each of the slowest rank
  double p50_us = 0;
  double p99_us = 0;
  int64_t wrong = 0;         // elements, on all ranks
  double bandwidth = 0;      // bytes a second: bytes / p50
  double bus_bandwidth = 0;  // of it what a link carries (nccl-tests, doc/PERFORMANCE.md)
};

// Collective: every rank of the communicator calls it, which serves memory of the device. Checks
// the result of one operation against a plain loop, warms up, then times each operation by itself,
// with a barrier before it if it has a root.
struct MeasureOptions {
  Collective operation = Collective::kAllReduce;
  int64_t bytes = 0;
  bool in_place = false;
  Device device = {};  // of the buffers
};
Result<Measurement> measure(Communicator& comm, const BenchSettings& settings,
                            const MeasureOptions& options);

}  // namespace lockstep
