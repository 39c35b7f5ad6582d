#include "common/layout/stage_cut.h"

#include <algorithm>
#include <limits>

#include "common/base/check.h"

namespace lockstep {
namespace {

constexpr double kNoCut = std::numeric_limits<double>::infinity();

// The best cuts of the pieces from each one on, found from the last piece to the first one.
class Cutter {
 public:
  explicit Cutter(std::span<const double> costs) : before_(costs.size() + 1) {
    for (size_t i = 0; i < costs.size(); ++i) before_[i + 1] = before_[i] + costs[i];
  }

  double cost(int64_t first, int64_t end) const { return at(before_, end) - at(before_, first); }

  // Returns the cost of the most expensive run in the best cut.
  double least_maximum(int64_t parts) {
    solve(
        parts, [](double cost) { return cost; },
        [](double run, double rest) { return std::max(run, rest); });
    return at(values_.back(), 0);
  }
  // Returns the cut with the least sum of squares whose runs cost at most `maximum`.
  std::vector<int64_t> least_squares(int64_t parts, double maximum) {
    solve(
        parts, [&](double cost) { return cost <= maximum ? cost * cost : kNoCut; },
        [](double run, double rest) { return run + rest; });
    std::vector<int64_t> counts;
    int64_t first = 0;
    for (int64_t left = parts; left > 0; --left) {
      counts.push_back(at(ends_[static_cast<size_t>(left - 1)], first) - first);
      first += counts.back();
    }
    return counts;
  }

 private:
  template <class T>
  static T at(const std::vector<T>& values, int64_t index) {
    return values[static_cast<size_t>(index)];
  }

  // values_[k][i]: of the best cut of the pieces from i on into k + 1 runs, whose first one ends at
  // ends_[k][i].
  template <class Value, class Join>
  void solve(int64_t parts, Value value, Join join) {
    const int64_t pieces = std::ssize(before_) - 1;
    values_.assign(static_cast<size_t>(parts), std::vector<double>(before_.size(), kNoCut));
    ends_.assign(static_cast<size_t>(parts), std::vector<int64_t>(before_.size(), pieces));
    for (int64_t first = 0; first < pieces; ++first) {
      values_[0][static_cast<size_t>(first)] = value(cost(first, pieces));
    }
    for (size_t more = 1; more < values_.size(); ++more) {
      for (int64_t first = 0; first < pieces; ++first) {
        double& best = values_[more][static_cast<size_t>(first)];
        for (int64_t end = first + 1; end < pieces; ++end) {
          const double found = join(value(cost(first, end)), at(values_[more - 1], end));
          if (found > best || found == kNoCut) continue;
          best = found;
          ends_[more][static_cast<size_t>(first)] = end;
        }
      }
    }
  }

  std::vector<double> before_;  // costs of the pieces before each one
  std::vector<std::vector<double>> values_;
  std::vector<std::vector<int64_t>> ends_;
};

}  // namespace

std::vector<int64_t> cut_by_cost(std::span<const double> costs, int64_t parts) {
  CHECK(parts >= 1 && parts <= std::ssize(costs));
  Cutter cutter(costs);
  return cutter.least_squares(parts, cutter.least_maximum(parts));
}

}  // namespace lockstep
