#pragma once

#include <ctime>

namespace lockstep::bench {

// Returns the CPU time of this process so far.
inline double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace lockstep::bench
