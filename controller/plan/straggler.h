#pragma once

#include <cstdint>
#include <optional>
#include <string>

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

// Ranks that compute the same are compared: those of a stage or, if each stage has one rank, all
// (`stages_are_even`: the stages have about the same work; else none). Returns the slowest one that
// takes at least `ratio_min` as long as the median of all, if that makes a step at least a tenth
// longer. Nothing until all of them have reported a speed. Pure.
struct SlowRankSearch {
  const Mesh& mesh;
  double ratio_min = 0;
  bool stages_are_even = true;
};
std::optional<SlowRank> find_slow(const RankStates& ranks, const SlowRankSearch& search);

// Derives the condition Straggling from the reports of the round's agents: a rank takes at least
// 1.5 times as long as its peers; it ends below 1.25 times, or with the round.
void derive_straggling(Pass& pass);

// Returns the failure of a rank that has been straggling for as long as the job's first rule about
// kStraggler says. Otherwise requeues for when that may be so.
std::optional<FailureStatus> find_straggler(Pass& pass);

}  // namespace lockstep::plan
