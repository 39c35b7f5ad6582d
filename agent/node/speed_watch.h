#pragma once

#include <cstdint>
#include <optional>

#include "common/api/agent_messages.h"
#include "common/api/progress_page.h"
#include "common/base/clock.h"

namespace lockstep::node {

// Averages what a rank's steps take over kWindow, from its progress page, so that the controller
// can compare the ranks. Leaves out the first steps of a round, which warm up. One rank of one
// round; one thread.
class SpeedWatch {
 public:
  static constexpr Duration kWindow = std::chrono::seconds(60);
  static constexpr int64_t kStepsLeftOut = 3;
  static constexpr int64_t kStepsMin = 3;  // of a window; it lasts longer if steps do

  // Call with the page's numbers whenever they have changed. Steps between two calls count as the
  // one that is seen.
  void observe(const ProgressNumbers& numbers, TimePoint now);
  // Returns the averages of the last complete window.
  const std::optional<WorkerSpeed>& speed() const { return speed_; }

 private:
  int64_t first_step_ = -1;  // seen of the round
  int64_t step_ = -1;
  int64_t steps_ = 0;  // in the sums
  WorkerSpeed sums_;
  TimePoint began_{};
  std::optional<WorkerSpeed> speed_;
};

}  // namespace lockstep::node
