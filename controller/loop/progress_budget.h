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

  // When the job may write next, while `jobs` of them want to. The first writes of many jobs, as
  // after a restart of the controller, are spread over the time that each has a share of: a job
  // that waits for the rate limit with its numbers waits with everything else.
  TimePoint next(const std::string& job, size_t jobs, TimePoint now);
  void spend(const std::string& job, TimePoint now) { last_[job].numbers = last_[job].any = now; }
  // The job's status was written for another reason.
  void note_write(const std::string& job, TimePoint now) { last_[job].any = now; }
  void forget(const std::string& job) { last_.erase(job); }

 private:
  struct Writes {
    TimePoint known_since{};
    std::optional<TimePoint> numbers{};
    std::optional<TimePoint> any{};
  };

  Options options_;
  std::map<std::string, Writes> last_;
};

}  // namespace lockstep
