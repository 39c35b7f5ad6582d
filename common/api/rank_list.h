#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace lockstep {

// Parses "0,7", "0-3", "0::2", "1:7:2" (start:stop:step as in Python, stop exclusive) and
// comma-separated lists of these. Keeps the order. kInvalid for duplicates and for ranks outside
// [0, world_size). Bounded by world_size.
Result<std::vector<int64_t>> parse_ranks(std::string_view text, int64_t world_size);

// Returns the numbers as parse_ranks() reads them, with runs of three and more as spans:
// "0-3,5,7-9".
std::string rank_list_text(std::span<const int64_t> ascending);

}  // namespace lockstep
