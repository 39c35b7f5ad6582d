#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::server {

// Some of the rows of a list: bit i % 64 of word i / 64 says whether row i is selected.
using RowSelection = std::vector<uint64_t>;

constexpr uint64_t selection_words(uint64_t rows) {
  return (rows + 63) / 64;
}
inline bool is_selected(const RowSelection& selection, uint64_t row) {
  return (selection[row / 64] >> row % 64 & 1) != 0;
}
uint64_t selected_count(const RowSelection& selection);
// Whether it has the words of a list of `rows`, and no bit behind them.
bool is_selection_of(const RowSelection& selection, uint64_t rows);

// Selects the rows [rows, dim] with a value that is above `threshold` in magnitude, or not finite.
RowSelection rows_above(std::span<const float> values, uint64_t dim, float threshold);

// Returns the elements of a list that are selected.
template <class T>
std::vector<T> selected(std::span<const T> list, const RowSelection& selection) {
  std::vector<T> some;
  some.reserve(selected_count(selection));
  for (uint64_t i = 0; i < list.size(); ++i) {
    if (is_selected(selection, i)) some.push_back(list[i]);
  }
  return some;
}

}  // namespace lockstep::server
