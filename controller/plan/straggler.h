#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "common/layout/mesh.h"
#include "controller/plan/pass.h"
#include "controller/plan/stuck.h"

namespace lockstep::plan {

// A rank that computes for longer than its peers, which wait for it in every step.
struct SlowRank {
  int64_t rank = -1;
  double ratio = 0;               // its seconds / those of its peers
  double seconds = 0;             // that it computes in a step
  double usual = 0;               // the same of its peers: the median
  std::string_view slowest = {};  // the part of the step with most of the difference
};

// Compares ranks that compute the same: those of a pipeline stage, if it has several. Returns those
// that take at least `ratio_min` times as long as the median of all, the slowest first, where that
// makes a step at least a tenth longer. Nothing unless all ranks have reported a speed. Pure.
std::vector<SlowRank> find_slow(const RankStates& ranks, const Mesh& mesh, double ratio_min);

// Derives the condition Straggling from the reports of the round's agents: a rank takes at least
// 1.5 times as long as its peers. It stays with this rank until that takes less than 1.25 times as
// long, or the round ends. A missing report changes nothing.
void derive_straggling(Pass& pass);

// Returns the failure of a rank that has been straggling for as long as the job's first rule about
// kStraggler says, unless it asks for a restart and none is left. Otherwise requeues for when that
// may be so.
std::optional<FailureStatus> find_straggler(Pass& pass);

}  // namespace lockstep::plan
