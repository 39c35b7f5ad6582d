#include "agent/server/row_selection.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace lockstep::server {

uint64_t selected_count(const RowSelection& selection) {
  uint64_t count = 0;
  for (const uint64_t word : selection) count += static_cast<uint64_t>(std::popcount(word));
  return count;
}

bool is_selection_of(const RowSelection& selection, uint64_t rows) {
  if (selection.size() != selection_words(rows)) return false;
  return rows % 64 == 0 || selection.back() >> rows % 64 == 0;
}

RowSelection rows_above(std::span<const float> values, uint64_t dim, float threshold) {
  const uint64_t rows = values.size() / dim;
  RowSelection selection(selection_words(rows));
  for (uint64_t row = 0; row < rows; ++row) {
    const std::span<const float> of_row = values.subspan(row * dim, dim);
    const bool is_small =
        std::ranges::all_of(of_row, [=](float value) { return std::abs(value) <= threshold; });
    if (!is_small) selection[row / 64] |= uint64_t{1} << row % 64;
  }
  return selection;
}

}  // namespace lockstep::server
