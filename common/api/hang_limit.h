#pragma once

#include <cstddef>
#include <vector>

#include "common/base/clock.h"

namespace lockstep {

// How long an operation waits for a rank from which nothing comes, but within steps: a peer may
// save a checkpoint meanwhile. That it ended is known at once, by its connection.
inline constexpr Duration kSilenceLimit = std::chrono::minutes(10);

// A rank's agent tells of a wait in a collective once nothing has moved in it for so long.
inline constexpr Duration kWaitTold = std::chrono::seconds(10);

// How long a step may stand still until a rank counts as hung, as the others see it that wait for
// it in a collective, or its agent:
//   max(floor, 5 x median of the last steps' seconds),
// and `pause` where what a step takes isn't known: in a round's first steps, and in the step after
// one rank may have saved a checkpoint or all have validated. Every rank makes the same calls in
// the same steps, though their times differ.
class HangLimit {
 public:
  HangLimit(Duration floor, Duration pause) : floor_(floor), pause_(pause) {}

  void add_step(Duration took);
  // Something other than a step has come, or comes, in between.
  void note_pause() { is_after_pause_ = true; }

  Duration of_next_step() const;
  Duration of_pause() const { return pause_; }

 private:
  static constexpr size_t kStepsKept = 15;
  static constexpr size_t kStepsNeeded = 3;

  Duration floor_;
  Duration pause_;
  std::vector<Duration> steps_{};  // the last ones; a ring
  size_t next_ = 0;
  bool is_after_pause_ = false;
};

}  // namespace lockstep
