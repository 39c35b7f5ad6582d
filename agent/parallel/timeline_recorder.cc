#include "agent/parallel/timeline_recorder.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace lockstep::parallel {

TimelineRecorder::TimelineRecorder(size_t capacity, int64_t micro_batches)
    : ring_(capacity), micro_batches_(micro_batches) {
  CHECK(capacity > 0);
}

void TimelineRecorder::begin_step(TimePoint begin) {
  if (steps_.empty() && count_ == 0) begin_ = begin;
  step_begin_ = begin;
}

void TimelineRecorder::add(const Action* action, StepPart part, const Span& span) {
  TimelineRecord& record = ring_[count_++ % ring_.size()];
  record = {.step = step_,
            .part = part,
            .version = step_ - 1,
            .begin_ns = since_begin(span.begin),
            .end_ns = since_begin(span.end)};
  if (action == nullptr) return;
  record.action = action->kind;
  if (action->version >= 0) record.version = action->version;
  record.micro_batch = action->micro_batch;
  const bool is_later = action->micro_batch >= 0 && action->step > step_;
  if (is_later) record.micro_batch += (action->step - step_) * micro_batches_;
  record.chunk = action->chunk;
}

void TimelineRecorder::end_step(TimePoint end) {
  steps_.push_back(
      {.step = step_, .begin_ns = since_begin(step_begin_), .end_ns = since_begin(end)});
}

void TimelineRecorder::move_to(RankTimeline& timeline) {
  CHECK(has_steps());
  const size_t kept = std::min(count_, ring_.size());
  timeline.begin_ns = begin_.time_since_epoch().count();
  timeline.dropped = static_cast<int64_t>(count_ - kept);
  timeline.steps = std::exchange(steps_, {});
  timeline.records.clear();
  timeline.records.reserve(kept);
  for (size_t i = count_ - kept; i < count_; ++i) {
    timeline.records.push_back(ring_[i % ring_.size()]);
  }
  count_ = 0;
}

}  // namespace lockstep::parallel
