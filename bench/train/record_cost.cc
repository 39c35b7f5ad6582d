#include "bench/train/record_cost.h"

#include <chrono>

#include "agent/parallel/timeline_recorder.h"

namespace lockstep::bench {

double seconds_per_record(const Clock& clock) {
  constexpr int kRecords = 1'000'000;
  parallel::TimelineRecorder recorder(kTimelineRecordsMax);
  const Action action{.kind = ActionKind::kForward, .micro_batch = 3};
  const TimePoint begin = clock.now();
  recorder.begin_step(begin);
  for (int i = 0; i < kRecords; ++i) {
    const TimePoint at = begin + std::chrono::nanoseconds(i);
    recorder.add(&action, StepPart::kForward, {at, at});
  }
  return to_seconds(clock.now() - begin) / kRecords;
}

}  // namespace lockstep::bench
