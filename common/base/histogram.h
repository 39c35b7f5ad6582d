#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

// Counts values per bucket, as in a Prometheus histogram. Single-threaded.
class Histogram {
 public:
  // `bounds`: inclusive upper bounds, ascending. Larger values go to one extra bucket.
  explicit Histogram(std::vector<double> bounds);

  void observe(double value);

  const std::vector<double>& bounds() const { return bounds_; }
  const std::vector<uint64_t>& counts() const { return counts_; }  // one more entry than bounds
  double sum() const { return sum_; }
  uint64_t count() const;

 private:
  std::vector<double> bounds_;
  std::vector<uint64_t> counts_;
  double sum_ = 0;
};

// Returns 1, 2 and 5 times the powers of ten from `least` to `most` seconds.
std::vector<double> bounds_seconds(double least, double most);

}  // namespace lockstep
