#pragma once

#include <cstdint>
#include <span>

namespace lockstep::cli {

// Code points from `first` to `last`.
struct CodeRange {
  uint32_t first = 0;
  uint32_t last = 0;
};

// Ranges of the general categories L and N of Unicode 14.0.0, ascending, with gaps between them.
std::span<const CodeRange> letter_ranges();
std::span<const CodeRange> number_ranges();

}  // namespace lockstep::cli
