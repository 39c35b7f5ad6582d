#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/api/agent_messages.h"
#include "controller/plan/pass.h"

namespace lockstep::plan {

// State of each rank of one round, by rank; null if unknown.
using RankStates = std::vector<const WorkerState*>;

// Returns the states that the round's agents report.
RankStates rank_states(const Pass& pass);

// Ranks that wait, and the rank that holds them up while it waits for nobody.
struct StuckRank {
  int64_t rank = -1;             // -1: the waiting ranks wait for each other
  WorkerWait missing_from{};     // operation it is missing from, as reported by its longest waiter
  std::vector<int64_t> waiting;  // ranks that wait for it, directly or through others; ascending
};

// Follows each waiting rank to the ranks it waits for, and on across all groups, to the nearest one
// that waits for nobody. A rank without a sign of life counts as one. If several hold others up,
// returns the one that holds up most; on a tie, the lowest. nullopt if nobody waits. Pure.
std::optional<StuckRank> find_stuck(const RankStates& ranks);

// Names for stuck_text(), which returns a sentence such as "rank 3 on node b, in micro-batch 5 of
// stage 1, is missing from recv #17 of ranks 2, 3; ranks 0-2 wait for it".
struct StuckNames {
  const RankStates& ranks;
  std::string node;    // node of the culprit's pod; empty if unknown
  int64_t stage = -1;  // of the culprit; -1: there is only one
};
std::string stuck_text(const StuckRank& stuck, const StuckNames& names);

// Derives the condition Stuck from the reports of the round's agents. A rank that saves, validates
// or finishes is excused for Limits::saving_grace. Writes the condition when it becomes true,
// when the culprit or the waiting ranks change, and when it is over.
void derive_stuck(Pass& pass);

}  // namespace lockstep::plan
