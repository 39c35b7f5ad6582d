#pragma once

#include <map>
#include <optional>
#include <string>

#include "common/base/clock.h"

namespace lockstep {

// How often jobs may write mere numbers to status (progress, pods that run): all of them together
// at most `per_second` times, each as often as the others, and none sooner than `interval_min`
// after whatever it wrote to status last.
class ProgressBudget {
 public:
  struct Options {
    double per_second = 5;
    Duration interval_min = std::chrono::seconds(1);
  };

  explicit ProgressBudget(Options options) : options_(options) {}

  // When the job may write next, while `jobs` of them want to.
  TimePoint next(const std::string& job, size_t jobs) const;
  void spend(const std::string& job, TimePoint now) { last_[job] = {.numbers = now, .any = now}; }
  // The job's status was written for another reason.
  void note_write(const std::string& job, TimePoint now) { last_[job].any = now; }
  void forget(const std::string& job) { last_.erase(job); }

 private:
  struct Writes {
    std::optional<TimePoint> numbers;
    TimePoint any;
  };

  Options options_;
  std::map<std::string, Writes> last_;
};

}  // namespace lockstep
