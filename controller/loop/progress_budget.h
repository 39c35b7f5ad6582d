#pragma once

#include <map>
#include <string>

#include "common/base/clock.h"

namespace lockstep {

// How often jobs may write mere progress to status: all of them together at most `per_second`
// times, each as often as the others, and none more often than once in `interval_min`.
class ProgressBudget {
 public:
  struct Options {
    double per_second = 5;
    Duration interval_min = std::chrono::seconds(1);
  };

  explicit ProgressBudget(Options options) : options_(options) {}

  // When the job may write next, while `jobs` of them want to.
  TimePoint next(const std::string& job, size_t jobs) const;
  void spend(const std::string& job, TimePoint now) { last_[job] = now; }
  void forget(const std::string& job) { last_.erase(job); }

 private:
  Options options_;
  std::map<std::string, TimePoint> last_;
};

}  // namespace lockstep
