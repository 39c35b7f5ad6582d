#include "bench/controller/scale/played_time.h"

#include <algorithm>
#include <ctime>

namespace lockstep::bench {

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

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
    loop_.run_due();
    worked_seconds_ += to_seconds(clock_.end_work());
  }
  return true;
}

}  // namespace lockstep::bench
