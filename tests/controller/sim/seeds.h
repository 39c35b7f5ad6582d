#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/controller/sim/fault.h"
#include "tests/controller/sim/simulation.h"

namespace lockstep::sim {

inline constexpr int64_t kJobsMin = 3;
inline constexpr int64_t kFaultsMin = 10;
inline constexpr int64_t kEventsMin = 200;

struct SeedResult {
  uint64_t seed = 0;
  std::string violation;  // the first one; empty if all is well
  uint64_t trace_hash = 0;
  Counts counts{};
};

// Runs one seed: at least kJobsMin jobs, kFaultsMin faults and kEventsMin events. Then faults stop,
// every job has to end, and the controller has to stop writing. The same seed always gives the same
// trace.
SeedResult run_seed(uint64_t seed, const Mutation& mutation = {});

struct CampaignResult {
  Counts counts{};
  uint64_t trace_hash = 0;           // sum over all seeds; independent of their order
  std::vector<SeedResult> failed{};  // sorted by seed
};
// Runs seeds [first, first + count) on `threads` threads.
CampaignResult run_seeds(uint64_t first, uint64_t count, int threads,
                         const Mutation& mutation = {});

}  // namespace lockstep::sim
