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

// Time, chance, faults and the trace of one simulated cluster: everything follows from the seed.
// `timers` are those of all that isn't a controller.
class Chance {
 public:
  Chance(ManualClock& clock, uint64_t seed) : clock(clock), timers(clock), random(seed) {}

  ManualClock& clock;
  Timers timers;
  Random random;
  Counts counts;
  std::array<double, kFaults> rates{};  // per opportunity; of failures: per node and half second
  bool is_quiet = false;                // nothing more goes wrong
  std::vector<std::string> violations;  // invariants that were broken, in words

  double& rate(Fault fault) { return rates[static_cast<size_t>(fault)]; }
  // Whether it happens now; counted if so.
  bool happens(Fault fault, std::string_view whom = {});
  void count(Fault fault, std::string_view whom = {});
  void count(Transition transition, std::string_view whom = {});
  void violate(std::string_view invariant, std::string_view what);

  bool flip(double probability);
  Duration between(Duration least, Duration most);
  Duration delay(Duration most) { return between(Duration{1}, most); }

  // An event of the trace, whose hash is the same whenever the seed is.
  void note(std::string_view what, std::string_view whom = {});
  uint64_t trace_hash() const { return hash_; }

  std::string wall_time() const { return rfc3339(clock.wall_now()); }

 private:
  uint64_t hash_ = 14695981039346656037u;
};

}  // namespace lockstep::sim
