#include "agent/train/timeline.h"

#include <utility>

#include "agent/comm/clock_offset.h"
#include "agent/train/timeline_files.h"
#include "common/base/log.h"

namespace lockstep::train {

bool is_recorded(const TimelineSpec& spec, int64_t step) {
  return spec.everySteps > 0 && (step - 1) % spec.everySteps >= spec.everySteps - spec.steps;
}

Timeline::Timeline(Options options, comm::Communicator& world, const Clock& clock)
    : options_(std::move(options)),
      world_(world),
      clock_(clock),
      recorder_(kTimelineRecordsMax, options_.micro_batches) {}

parallel::TimelineRecorder* Timeline::recorder_of(int64_t step) {
  if (!is_recorded(options_.spec, step)) return nullptr;
  recorder_.expect_step(step);
  return &recorder_;
}

Status Timeline::step_done(int64_t step) {
  if (step % options_.spec.everySteps != 0) return {};
  RankTimeline timeline{.round = options_.round,
                        .rank = world_.rank(),
                        .ranks = world_.size(),
                        .stage = options_.stage,
                        .stages = options_.stages};
  TRY_ASSIGN(timeline.clock, comm::measure_clock_offset(world_, clock_));
  recorder_.move_to(timeline);
  const Status written = write(timeline);
  if (written.ok() || std::exchange(has_lost_files_, true)) return {};
  log_warning("files of the timeline are lost", {{"reason", written.error().message}});
  return {};
}

Status Timeline::write(const RankTimeline& timeline) const {
  TRY(write_timeline_file(options_.folder, timeline));
  if (timeline.rank != 0) return {};
  return remove_old_timelines(options_.folder,
                              {.step = timeline.steps.back().step, .ranks = timeline.ranks});
}

}  // namespace lockstep::train
