#pragma once

#include <memory>

#include "agent/parallel/timeline_recorder.h"
#include "common/api/step_numbers.h"
#include "common/api/timeline.h"
#include "common/base/clock.h"
#include "common/base/result.h"
#include "kernels/device/device.h"

namespace lockstep::parallel {

// How long the parts of an optimizer step take. A part lasts from the lap before it (the first one
// from begin()) to its own lap, and adds up over its laps. Two forms with one contract:
// - of the host, where operations are done when their call returns: laps are readings of its clock;
// - of a GPU, which runs behind the host: laps are events with time, recorded on the stream that
//   computes, in the order of what is issued there. A part is then what that stream spends on it,
//   waiting included: for tokens in data, for reductions that backward did not hide in
//   communication, for a host that issues too slowly in the part that it issues.
// The total is the host's in both. A recorder gets each lap of a step, with the action that it
// belongs to. One thread.
class StepTimer {
 public:
  virtual ~StepTimer() = default;

  // The step begins. These issue; they don't wait. `recorder` outlives the step; null: none.
  virtual Status begin(TimelineRecorder* recorder) = 0;
  virtual Status lap(StepPart part) = 0;
  // Laps from now on are of this action, which outlives the step.
  void enter(const Action& action) { action_ = &action; }
  // Ends the step and sets the seconds of its parts and of the whole. Returns kUnavailable unless
  // all work issued on the stream up to the last lap is complete. Time that the host spends after
  // the last lap counts as communication in the host's timer. It counts to no part in the GPU's
  // timer, so the parts there add up to less than the total.
  virtual Status end(StepNumbers& numbers) = 0;

 protected:
  const Action* action_ = nullptr;  // null: none is under way
};

// The form that the stream's device needs. Both outlive it.
std::unique_ptr<StepTimer> make_step_timer(kernels::Stream& stream, const Clock& clock);

}  // namespace lockstep::parallel
