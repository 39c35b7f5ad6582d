#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/api/timeline.h"
#include "common/base/clock.h"
#include "common/layout/pipeline_schedule.h"

namespace lockstep::parallel {

// Records what a rank does in some steps, in memory that is allocated once. If there is no room,
// new records replace the oldest ones. One thread.
class TimelineRecorder {
 public:
  // `capacity` records, at least one. `micro_batches`: of a step. If steps overlap, those of later
  // steps go on counting after the last one of the step under way.
  explicit TimelineRecorder(size_t capacity, int64_t micro_batches = 1);

  // The number of the step that the timer begins next.
  void expect_step(int64_t step) { step_ = step; }

  // The timer calls these. A span without an action is what the step does outside the schedule.
  struct Span {
    TimePoint begin;
    TimePoint end;
  };
  void begin_step(TimePoint begin);
  void add(const Action* action, StepPart part, const Span& span);
  void end_step(TimePoint end);

  // Whether there is a step that ended.
  bool has_steps() const { return !steps_.empty(); }
  // Moves steps and records, with their times, to a timeline whose other members stay, and forgets
  // them. Needs a step that ended.
  void move_to(RankTimeline& timeline);

 private:
  int64_t since_begin(TimePoint time) const { return (time - begin_).count(); }

  std::vector<TimelineRecord> ring_;  // of `capacity`
  int64_t micro_batches_;
  size_t count_ = 0;  // records added, with those that were replaced
  std::vector<TimelineStep> steps_;
  TimePoint begin_{};       // of the first step
  TimePoint step_begin_{};  // of the step under way
  int64_t step_ = 0;
};

}  // namespace lockstep::parallel
