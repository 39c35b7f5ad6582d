#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/launch_shape.h"

// Launch shapes and workspace sizes of the kernels in matmul.cu; pure.
namespace lockstep::kernels {

// One thread per element of D; a block is a square of kProductTile x kProductTile elements.
inline constexpr int kProductTile = 16;
LaunchShape plain_product_shape(int64_t rows, int64_t columns);

// Sums the columns of a [rows, columns] matrix in two passes: first each part of the rows alone,
// then the parts in ascending order. The parts do not depend on the load width, so the sums are
// bitwise the same.
struct ColumnSumPlan {
  int64_t parts = 0;
  int64_t rows_at_once = 0;   // rows per part; the last part may have fewer
  LaunchShape partial_shape;  // column_sums_shape(): a lane has `values` adjacent columns
};
ColumnSumPlan column_sum_plan(int64_t rows, int64_t columns, int values);
// Returns the bytes of the parts' sums.
size_t column_sum_bytes(int64_t rows, int64_t columns);

}  // namespace lockstep::kernels
