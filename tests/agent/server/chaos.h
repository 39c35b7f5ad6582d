#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/server/unit_clock.h"

namespace lockstep::test {

// A run of workers and replicated servers, all in processes of their own, of which some are killed,
// stopped and cut off while a manager makes views; and what its histories show.
struct ChaosSetup {
  uint64_t seed = 0;  // of the faults and all data
  server::Consistency consistency;
  uint32_t copies = 1;
  uint64_t steps = 40;
  uint32_t faults = 4;
  bool cuts_connections = false;  // of workers
  uint32_t calls_max = 1024;      // under way to a server, from each client
};
struct ChaosReport {
  std::vector<std::string> problems;  // none: everything is as promised
  std::string faults;                 // what was done, for people
  uint64_t acknowledged_pushes = 0;
  uint64_t pulls = 0;
  uint64_t updates = 0;
  uint64_t views = 0;
  uint64_t cuts = 0;
  uint64_t most_stale = 0;  // clocks that a pull missed
  // From the kill of a primary, with the next view given at once, to the first acknowledged push of
  // one of its units.
  std::vector<double> pauses_ms;
};
// Call it while this process has one thread.
ChaosReport run_chaos(const ChaosSetup& setup);

}  // namespace lockstep::test
