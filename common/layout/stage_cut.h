#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

// Cuts consecutive pieces of a model into `parts` runs of at least one piece each, so that the most
// expensive run costs the least. Among such cuts, chooses the one whose sum of squared costs is
// least, and then the one with the most pieces in the earlier runs. Returns the number of pieces of
// each run. 1 <= parts <= costs.size(); costs are not negative.
std::vector<int64_t> cut_by_cost(std::span<const double> costs, int64_t parts);

}  // namespace lockstep
