#include "common/base/histogram.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/base/check.h"

namespace lockstep {

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {
  CHECK(std::is_sorted(bounds_.begin(), bounds_.end()));
}

void Histogram::observe(double value) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  ++counts_[static_cast<size_t>(bucket)];
  sum_ += value;
}

uint64_t Histogram::count() const {
  return std::accumulate(counts_.begin(), counts_.end(), uint64_t{0});
}

std::vector<double> bounds_seconds(double least, double most) {
  constexpr double kRounding = 1.0001;
  std::vector<double> bounds;
  for (double power = least; power <= most * kRounding; power *= 10) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (power * factor <= most * kRounding) bounds.push_back(power * factor);
    }
  }
  return bounds;
}

}  // namespace lockstep
