#pragma once

#include <algorithm>
#include <map>
#include <string>

#include "common/base/clock.h"

namespace lockstep::loop {

// Shares this thread's time between jobs: says how long a job rests after work that took long, so
// that cheap jobs find the thread free. A job may use one part in `factor` + 1 of the time; it owes
// what it used beyond that, and rests once it owes more than `credit`. Work of less than `from` is
// free, so that ordinary jobs have no entry here.
//
// Work because of progress alone can wait, so it has a smaller share, without credit: after work of
// at least `progress_from` it rests for `progress_factor` times as long.
class ThreadShare {
 public:
  struct Options {
    Duration from = std::chrono::milliseconds(2);
    Duration credit = std::chrono::milliseconds(25);
    int factor = 19;
    Duration rest_max = std::chrono::seconds(1);
    Duration progress_from = std::chrono::microseconds(500);
    int progress_factor = 199;
    Duration progress_rest_max = std::chrono::seconds(2);
  };
  // `progress` is as long as `routine` or longer.
  struct Rests {
    Duration routine;
    Duration progress;
  };

  explicit ThreadShare(Options options) : options_(options) {}

  // Records work that took `cost`; returns the rests that follow it, often none.
  Rests charge(const std::string& key, Duration cost, TimePoint now) {
    const Duration routine = cost < options_.from ? Duration::zero() : charge_debt(key, cost, now);
    const Duration progress =
        cost < options_.progress_from
            ? Duration::zero()
            : std::min(cost * options_.progress_factor, options_.progress_rest_max);
    return {routine, std::max(routine, progress)};
  }

  // The job is gone.
  void drop(const std::string& key) { debts_.erase(key); }

 private:
  struct Debt {
    Duration owed;
    TimePoint since;
  };

  Duration charge_debt(const std::string& key, Duration cost, TimePoint now) {
    Debt& debt = debts_.try_emplace(key, Debt{Duration::zero(), now}).first->second;
    const Duration paid = (now - debt.since) / options_.factor;
    const Duration most = options_.credit + options_.rest_max / options_.factor;
    debt = {std::min(std::max(debt.owed - paid, Duration::zero()) + cost, most), now};
    return std::max(debt.owed - options_.credit, Duration::zero()) * options_.factor;
  }

  Options options_;
  std::map<std::string, Debt> debts_;
};

}  // namespace lockstep::loop
