#include "bench/controller/scale/played_time.h"

#include <algorithm>

#include "bench/controller/scale/counted_heap.h"

namespace lockstep::bench {

void PlayedTime::WorkClock::advance_to(TimePoint time) {
  if (time > now()) manual_.advance(time - now());
}

Duration PlayedTime::WorkClock::worked() const {
  return begin_ ? from_seconds(cpu_seconds() - *begin_) : Duration::zero();
}

Duration PlayedTime::WorkClock::end_work() {
  const Duration work = worked();
  manual_.advance(work);
  begin_.reset();
  return work;
}

bool PlayedTime::run(double seconds, const std::function<bool()>& done) {
  const TimePoint end = now() + from_seconds(seconds);
  while (!done()) {
    if (now() >= end) return false;
    TimePoint next = end;
    if (const auto due = world_.next()) next = std::min(next, *due);
    if (const auto due = loop_.next()) next = std::min(next, *due);
    clock_.advance_to(next);
    world_.run_due();
    clock_.begin_work();
    set_heap_owner(HeapOwner::kController);
    loop_.run_due();
    set_heap_owner(HeapOwner::kCluster);
    worked_seconds_ += to_seconds(clock_.end_work());
  }
  return true;
}

}  // namespace lockstep::bench
