#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

// Values counted by size, as Prometheus counts them. Single-threaded.
class Histogram {
 public:
  // `bounds`: upper bounds, inclusive, rising; what is larger than the last has a bucket of its
  // own.
  explicit Histogram(std::vector<double> bounds);

  void observe(double value);

  const std::vector<double>& bounds() const { return bounds_; }
  const std::vector<uint64_t>& counts() const { return counts_; }  // one more than bounds
  double sum() const { return sum_; }
  uint64_t count() const;

 private:
  std::vector<double> bounds_;
  std::vector<uint64_t> counts_;
  double sum_ = 0;
};

// 1, 2 and 5 times the powers of ten from `least` to `most` seconds.
std::vector<double> bounds_seconds(double least, double most);

}  // namespace lockstep
