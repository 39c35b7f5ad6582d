#pragma once

#include <cstdint>
#include <string>

#include "cli/timeline/recording.h"

namespace lockstep::cli {

// Returns a table of a step: a row for each rank with the share of its time by what it did. Then
// the bubble, and how well the clocks are aligned.
std::string timeline_table(const Recording& recording, int64_t step);

}  // namespace lockstep::cli
