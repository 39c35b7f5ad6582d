#pragma once

#include "bench/kernels/bench_device.h"
#include "bench/kernels/roofline.h"
#include "bench/kernels/timing.h"

namespace lockstep::bench {

struct PeakSizes {
  int64_t copied_bytes = int64_t{1} << 30;  // far larger than any cache
  kernels::MatmulShape product{8192, 8192, 8192};
};

// Measures what this device achieves:
// - Memory: the faster of a copy and our own op that reads and writes as much (on the CPU it uses
//   all threads), at the lower quartile of the times.
// - Products: the best round of our matmul on random numbers. bf16 stays 0 on a CPU without bf16.
Result<Peaks> measure_peaks(BenchDevice& bench_device, const PeakSizes& sizes,
                            const SampleOptions& options);

// Returns the manufacturer's figures; 0 where the table in common/layout does not have the device.
Peaks datasheet_peaks(const std::string& device_name);

}  // namespace lockstep::bench
