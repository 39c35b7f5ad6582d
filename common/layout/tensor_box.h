#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/layout/parameters.h"

namespace lockstep {

// A rectangle of a logical tensor: rows [row_begin, row_end) and columns [column_begin,
// column_end). A vector of n elements has n rows and one column.
struct TensorBox {
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t column_begin = 0;
  int64_t column_end = 0;

  int64_t rows() const { return row_end - row_begin; }
  int64_t columns() const { return column_end - column_begin; }
  int64_t count() const { return rows() * columns(); }
  bool operator==(const TensorBox&) const = default;
};

// Returns the rectangles whose elements, row by row and one rectangle after the other, are those of
// the runs in their order. Runs are ascending in `global`. A run of one tensor gives at most three
// rectangles: the rest of a row, whole rows, the beginning of a row.
std::vector<TensorBox> boxes_of(std::span<const ShardRun> runs, int64_t columns);

// Whether the rectangles cover every element of a tensor of these dims exactly once. Takes at most
// boxes^2 comparisons.
bool covers_once(std::span<const TensorBox> boxes, int64_t rows, int64_t columns);

}  // namespace lockstep
