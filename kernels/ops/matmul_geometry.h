#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/launch_shape.h"

// How the kernels of matmul.cu are started, and what they need; pure.
namespace lockstep {

// One thread an element of D, a block a square of them.
inline constexpr int kProductTile = 16;
LaunchShape plain_product_shape(int64_t rows, int64_t columns);

// The sums of the columns of a [rows, columns] matrix in two passes: each part of the rows by
// itself, then the parts in ascending order. Parts are the same for any width of the loads, so that
// the sums are the same bits.
struct ColumnSumPlan {
  int64_t parts = 0;
  int64_t rows_at_once = 0;   // of a part; the last may have fewer
  LaunchShape partial_shape;  // column_sums_shape(): a lane has `values` neighbouring columns
};
ColumnSumPlan column_sum_plan(int64_t rows, int64_t columns, int values);
// Of the parts' sums.
size_t column_sum_bytes(int64_t rows, int64_t columns);

}  // namespace lockstep
