#pragma once

#include "bench/kernels/place.h"
#include "bench/kernels/roofline.h"
#include "bench/kernels/timing.h"

namespace lockstep::bench {

struct PeakSizes {
  int64_t copied_bytes = int64_t{1} << 30;  // far more than any cache has
  MatmulShape product{8192, 8192, 8192};
};

// What this device itself gives, in this run: memory by the faster of a copy and of our own
// operation that reads and writes as much (on the CPU all threads do the latter), at the faster end
// of the middle half; products by our matmul on random numbers, the best round. bf16 is left 0 on a
// CPU that hasn't got it.
Result<Peaks> measure_peaks(Place& place, const PeakSizes& sizes, const SampleOptions& options);

// Of the maker's datasheet; 0 each where the table of common/layout doesn't have the device.
Peaks datasheet_peaks(const std::string& device_name);

}  // namespace lockstep::bench
