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
class ThreadShare {
 public:
  struct Options {
    Duration from = std::chrono::milliseconds(2);
    Duration credit = std::chrono::milliseconds(25);
    int factor = 19;
    Duration rest_max = std::chrono::seconds(1);
  };

  explicit ThreadShare(Options options) : options_(options) {}

  // Records work that took `cost`; returns the rest that follows it, often none.
  Duration charge(const std::string& key, Duration cost, TimePoint now) {
    if (cost < options_.from) return Duration::zero();
    Debt& debt = debts_.try_emplace(key, Debt{Duration::zero(), now}).first->second;
    const Duration paid = (now - debt.since) / options_.factor;
    const Duration most = options_.credit + options_.rest_max / options_.factor;
    debt = {std::min(std::max(debt.owed - paid, Duration::zero()) + cost, most), now};
    return std::max(debt.owed - options_.credit, Duration::zero()) * options_.factor;
  }

  // The job is gone.
  void drop(const std::string& key) { debts_.erase(key); }

 private:
  struct Debt {
    Duration owed;
    TimePoint since;
  };

  Options options_;
  std::map<std::string, Debt> debts_;
};

}  // namespace lockstep::loop
