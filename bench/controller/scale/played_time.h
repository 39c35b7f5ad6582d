#pragma once

#include <functional>
#include <optional>

#include "bench/controller/scale/cpu_time.h"
#include "common/base/clock.h"
#include "controller/loop/timers.h"

namespace lockstep::bench {

// Simulated time, which goes on while the controller works: by the CPU time that its work takes.
// The heap that the controller allocates meanwhile counts as its own (counted_heap.h).
class PlayedTime {
 public:
  // Timers of the simulated cluster, which takes no time.
  loop::Timers& world() { return world_; }
  // Timers of the controller.
  loop::Timers& loop() { return loop_; }
  TimePoint now() const { return clock_.now(); }
  // Returns the CPU time of all work of the controller.
  double worked_seconds() const { return worked_seconds_; }
  // Runs until `done`, for at most `seconds` of simulated time. Returns whether it is done.
  bool run(double seconds, const std::function<bool()>& done);

 private:
  class WorkClock final : public Clock {
   public:
    TimePoint now() const override { return manual_.now() + worked(); }
    WallTime wall_now() const override { return manual_.wall_now() + worked(); }
    void advance_to(TimePoint time);
    void begin_work() { begin_ = cpu_seconds(); }
    // Returns how long the work took.
    Duration end_work();

   private:
    Duration worked() const;
    ManualClock manual_;
    std::optional<double> begin_;
  };

  WorkClock clock_;
  loop::Timers world_{clock_};
  loop::Timers loop_{clock_};
  double worked_seconds_ = 0;
};

}  // namespace lockstep::bench
