#pragma once

#include <cstdint>
#include <string>

#include "cli/timeline/recording.h"

namespace lockstep::cli {

inline constexpr size_t kPicturedRanksMax = 64;

// Draws a recorded step as an SVG picture: a row for each rank (at most kPicturedRanksMax of them),
// coloured by action, with the numbers of micro-batches where there is room, and the bubble of each
// stage in a caption. Waits within a forward or a backward are dark. Valid SVG for any input.
std::string timeline_svg(const Recording& recording, int64_t step);

}  // namespace lockstep::cli
