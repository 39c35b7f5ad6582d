#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "agent/server/view.h"
#include "tests/agent/server/chaos.h"

namespace lockstep::test {

// A server that was killed, and the units that it was the primary of.
struct ChaosKill {
  std::chrono::steady_clock::time_point at;
  uint64_t view = 0;  // then
  std::vector<server::UnitId> units;
};
struct ChaosOutcome {
  std::string folder;  // of the histories
  server::View last;   // view
  std::vector<uint32_t> servers;
  std::vector<uint32_t> workers;   // all
  std::vector<uint32_t> finished;  // workers that have done all steps
  std::vector<ChaosKill> kills;
};

// Compares what workers were told with the logs of the servers, and fills in the report:
// - every log has each push of a worker once, in the order of clocks, and all acknowledged ones;
// - servers agree about each entry, but for entries that nobody was told of;
// - every pull has the bits of a sequential replay of the log, up to the entry that it names;
// - no pull misses more pushes than consistency allows.
void check_histories(const ChaosSetup& setup, const ChaosOutcome& outcome, ChaosReport& report);

}  // namespace lockstep::test
