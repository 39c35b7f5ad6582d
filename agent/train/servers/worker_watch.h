#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/api/collective_board.h"
#include "common/api/hang_limit.h"
#include "common/base/clock.h"

namespace lockstep::train {

// Calls of workers wait for this at a server: until all of these workers have done it.
struct AwaitedWorkers {
  std::string operation;  // "step", "meeting"
  uint64_t number = 0;
  std::vector<uint32_t> ranks;  // ascending; at least one

  bool operator==(const AwaitedWorkers&) const = default;
};

// Decides whether a worker that others wait for hangs, from looks at regular intervals. A step has
// the limit of HangLimit, a meeting its pause. If rank 0 alone is missing from a meeting there is
// no limit: it saves or validates while the others wait, for as long as that takes. One thread.
class WorkerWatch {
 public:
  // `floor`, `pause`: as HangLimit().
  WorkerWatch(Duration floor, Duration pause) : limit_(floor, pause) {}

  // The workers begin after this step. Without it, it is unknown when the first steps have begun.
  void begin_at(uint64_t step, TimePoint now) {
    step_ = step;
    knows_step_ = true;
    looked_at_ = now;
  }
  // `step`: that all workers have completed; 0: none was seen. Time in which nobody looked does not
  // count: the whole machine may have been paused.
  void look(uint64_t step, std::optional<AwaitedWorkers> awaited, TimePoint now);
  // The wait so far does not count: the workers may have waited for something else.
  void begin_anew() { awaited_.reset(); }

  // The newest look's; nothing if no call waits.
  const std::optional<AwaitedWorkers>& awaited() const { return awaited_; }
  TimePoint since() const { return since_; }
  // The lowest rank that is waited for, if that has been for too long.
  std::optional<uint32_t> hung(TimePoint now) const;

 private:
  void take_steps(uint64_t steps, TimePoint looked_at, TimePoint now);

  HangLimit limit_;
  uint64_t step_ = 0;
  bool knows_step_ = false;
  TimePoint step_at_{};  // when the step was first seen; the epoch: none yet
  std::optional<AwaitedWorkers> awaited_;
  TimePoint since_{};
  TimePoint looked_at_{};
};

}  // namespace lockstep::train
