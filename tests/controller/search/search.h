#pragma once

#include <array>
#include <climits>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/controller/search/moves.h"
#include "tests/controller/sim/simulation.h"

namespace lockstep::search {

inline constexpr size_t kMoveKinds = static_cast<size_t>(MoveKind::kDeleteJob) + 1;

struct SearchResult {
  uint64_t states = 0;  // different ones that were reached
  uint64_t moves = 0;   // from one state to another
  uint64_t goals = 0;   // states in which the job has ended and everything rests
  size_t depth = 0;     // moves of the longest path
  std::array<uint64_t, kMoveKinds> of_kind{};
  bool is_complete = false;         // no state is left
  std::string violation{};          // empty: none was found
  std::vector<std::string> path{};  // the moves that lead to it
};

struct SearchOptions {
  int faults = 2;
  int edits = INT_MAX;               // of these faults, most that are changes of the job by users
  int others = INT_MAX;              // of these faults, most that are none
  uint64_t states_max = UINT64_MAX;  // gives up after this many
  // Tries all moves in each state, and distinguishes more states than needed.
  bool is_exhaustive = false;
  // Called with each state that was not known.
  std::function<void(const World&)> on_state{};
  // Called now and then.
  std::function<void(const SearchResult&)> on_progress{};
};

// Finds out whether any order of moves with up to `faults` faults breaks a property, and stops at
// the first violation. Goes depth first, and visits each state once that it reaches. Leaves out
// orders that differ from others only in moves that commute (reduction.h). Checks in each state:
// - the properties (properties.h), and
// - convergence: the moves of a fair cluster without faults (the first in each state) lead to the
//   goal. There is no deadlock, and no cycle.
// The second is cheap, because each state has a single next state on that way, which the search
// visits first.
SearchResult search(const sim::Mutation& mutation, const SearchOptions& options);

}  // namespace lockstep::search
