#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/kernels/place.h"

namespace lockstep::bench {

// Seconds of a call: the median, and the middle half as spread.
struct Spread {
  double low = 0.0;
  double median = 0.0;
  double high = 0.0;
};
// Of at least one.
Spread spread_of(std::vector<double> seconds);

double now_seconds();

// Seconds of so many calls, one behind the other: on the CPU of the clock; on a GPU of events
// before the first and after the last, so that they are the device's own, without what the host
// takes to begin and to wait.
class Stopwatch {
 public:
  static Result<Stopwatch> create(Place& place);
  Result<double> seconds(int calls, const std::function<void()>& call);

 private:
  explicit Stopwatch(Place& place) : place_(place) {}

  Place& place_;
  Event begin_, end_;
};

struct SampleOptions {
  double seconds = 0.3;  // that the samples of each call take together; 0: one sample of one call
  int samples_min = 3;
};

// Of each of the calls, in turn again and again; before that all once. A sample on a GPU is so many
// calls as take two milliseconds, at most 1000.
Result<std::vector<Spread>> sample(Place& place, const std::vector<std::function<void()>>& calls,
                                   const SampleOptions& options);

}  // namespace lockstep::bench
