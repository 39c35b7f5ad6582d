#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/kernels/bench_device.h"

namespace lockstep::bench {

// Quartiles of the seconds of a call.
struct Spread {
  double low = 0.0;
  double median = 0.0;
  double high = 0.0;
};
// Expects at least one value.
Spread spread_of(std::vector<double> seconds);

double now_seconds();

// Measures the time in seconds of several calls in a row. On the CPU it uses the clock. On a GPU it
// uses events before the first and after the last call, which excludes the host's time for
// launching and waiting.
class Stopwatch {
 public:
  static Result<Stopwatch> create(BenchDevice& bench_device);
  Result<double> seconds(int calls, const std::function<void()>& call);

 private:
  explicit Stopwatch(BenchDevice& bench_device) : bench_device_(bench_device) {}

  BenchDevice& bench_device_;
  kernels::Event begin_, end_;
};

struct SampleOptions {
  double seconds = 0.3;  // total time of each call's samples; 0: one sample of one call
  int samples_min = 3;
};

// Samples the calls in turn, after running each of them once. On a GPU a sample has as many calls
// as fit into two milliseconds, at most 1000.
Result<std::vector<Spread>> sample(BenchDevice& bench_device,
                                   const std::vector<std::function<void()>>& calls,
                                   const SampleOptions& options);

}  // namespace lockstep::bench
