#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "controller/loop/timers.h"
#include "tests/controller/sim/fault.h"

namespace lockstep::sim {

// Time, chance, faults and the trace of one simulated cluster. Everything follows from the seed.
// `timers` are those of everything but the controllers.
class Chance {
 public:
  Chance(ManualClock& clock, uint64_t seed) : clock(clock), timers(clock), random(seed) {}

  ManualClock& clock;
  loop::Timers timers;
  Random random;
  Counts counts;
  std::array<double, kFaults> rates{};  // per opportunity; for failures: per node and half second
  bool is_quiet = false;                // no more faults
  std::vector<std::string> violations;  // descriptions of broken invariants

  double& rate(Fault fault) { return rates[static_cast<size_t>(fault)]; }
  // Returns whether the fault happens now; counts it if so.
  bool happens(Fault fault, std::string_view whom = {});
  // Makes the fault happen at that opportunity, counted from 1, whatever its rate.
  void plan(Fault fault, int64_t opportunity) {
    planned_[static_cast<size_t>(fault)] = opportunity;
  }
  int64_t opportunities(Fault fault) const { return opportunities_[static_cast<size_t>(fault)]; }
  void count(Fault fault, std::string_view whom = {});
  void count(Transition transition, std::string_view whom = {});
  void violate(std::string_view invariant, std::string_view what);

  bool flip(double probability);
  Duration between(Duration least, Duration most);
  Duration delay(Duration most) { return between(Duration{1}, most); }

  // Adds an event to the trace. The same seed gives the same trace hash.
  void note(std::string_view what, std::string_view whom = {});
  uint64_t trace_hash() const { return hash_; }

  std::string wall_time() const { return rfc3339(clock.wall_now()); }

 private:
  std::array<int64_t, kFaults> opportunities_{};
  std::array<int64_t, kFaults> planned_{};
  uint64_t hash_ = 14695981039346656037u;
};

}  // namespace lockstep::sim
