#pragma once

#include <cstddef>
#include <vector>

#include "common/api/world_assignment.h"
#include "common/base/clock.h"

namespace lockstep {

// How long an operation outside training steps waits for a silent rank, which may be saving a
// checkpoint. If the rank's process ends, its connection reports that immediately.
inline constexpr Duration kSilenceLimit = std::chrono::minutes(10);

// An agent reports a rank's wait in a collective after this time without progress.
inline constexpr Duration kWaitReportDelay = std::chrono::seconds(10);

// Returns how long the longest regular steps take, as a multiple of the others. It is above 1 with
// PipeDream only: a step after which the pipeline is empty ends when its last micro-batch has been
// through all stages and back, while others end m micro-batches later than the one before.
double longest_step(const WorldAssignment& world, const BatchSpec& batch);

// Computes how long a step may make no progress before a rank counts as hung. Used by the ranks
// that wait for it in a collective and by its agent. The limit is
//   max(floor, min(5 x longest x median of the last steps' seconds, pause)),
// and `pause` if the duration of a step cannot be predicted: in the first steps of a round, and in
// the step after one rank may have saved a checkpoint or all ranks have validated. Every rank makes
// the same calls in the same steps, although their times differ.
class HangLimit {
 public:
  // `longest`: as longest_step().
  HangLimit(Duration floor, Duration pause, double longest = 1)
      : floor_(floor), pause_(pause), ratio_(5 * longest) {}

  void add_step(Duration took);
  // Reports that something other than a step happened or will happen before the next step.
  void note_pause() { is_after_pause_ = true; }

  Duration of_next_step() const;
  Duration of_pause() const { return pause_; }

 private:
  static constexpr size_t kStepsKept = 15;
  static constexpr size_t kStepsNeeded = 3;

  Duration floor_;
  Duration pause_;
  double ratio_;
  std::vector<Duration> steps_{};  // ring buffer of the last steps
  size_t next_ = 0;
  bool is_after_pause_ = false;
};

}  // namespace lockstep
