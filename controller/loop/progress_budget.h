#pragma once

#include <map>
#include <optional>
#include <string>

#include "common/base/clock.h"

namespace lockstep::loop {

// Limits how often jobs may write only numbers to status (progress, pods that run). All jobs
// together may do so at most `per_second` times, each as often as the others. A job waits for
// `interval_min` after its last status write of any kind.
class ProgressBudget {
 public:
  struct Options {
    double per_second = 5;
    Duration interval_min = std::chrono::seconds(1);
  };

  explicit ProgressBudget(Options options) : options_(options) {}

  // Returns when the job may write next, while `jobs` of them want to. Spreads the first writes of
  // many jobs, as after a restart of the controller, over the interval between two writes of one
  // job, so that they do not queue up at the rate limit.
  TimePoint next(const std::string& job, size_t jobs, TimePoint now);
  void spend(const std::string& job, TimePoint now) { last_[job].numbers = last_[job].any = now; }
  // Records a status write for another reason.
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

}  // namespace lockstep::loop
