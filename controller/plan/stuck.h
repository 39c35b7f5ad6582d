#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/api/agent_messages.h"
#include "controller/plan/pass.h"

namespace lockstep {

// Who stands still and for whom, of one round's ranks, by rank; null: nobody knows.
using RankStates = std::vector<const WorkerState*>;

// Ranks wait, and one that waits for nobody holds them up.
struct StuckRank {
  int64_t rank = -1;          // -1: the waiting ranks wait for each other
  WorkerWait missing_from{};  // what it did not come to, as the one says that waits longest for it
  std::vector<int64_t> waiting;  // directly or because another one waits; ascending
};

// Follows each rank that waits to those that it waits for, and on, through whatever groups, to the
// nearest that waits for nobody; a rank that gives no sign of life is one. Where several hold
// others up, the one that holds up most, of those the lowest. Nothing if nobody waits. Pure.
std::optional<StuckRank> find_stuck(const RankStates& ranks);

// In plain words: "rank 3 on node b is missing from all_reduce #17 of ranks 0-3; ranks 0-2 wait for
// it".
struct StuckNames {
  const RankStates& ranks;
  std::string node;  // of the culprit's pod; empty: not known
};
std::string stuck_text(const StuckRank& stuck, const StuckNames& names);

// The condition Stuck, as the round's agents tell it, but not for a rank that saves and will be
// there soon (Limits::saving_patience): written when it becomes true, when somebody
// else is to blame or other ranks wait, and when it is over.
void derive_stuck(Pass& pass);

}  // namespace lockstep
