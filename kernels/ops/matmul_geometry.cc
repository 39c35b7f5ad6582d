#include "kernels/ops/matmul_geometry.h"

#include "kernels/ops/geometry.h"

namespace lockstep::kernels {

LaunchShape plain_product_shape(int64_t rows, int64_t columns) {
  return {.name = "plain_product",
          .blocks = {ceil_divided(columns, kProductTile), ceil_divided(rows, kProductTile)},
          .threads = kProductTile * kProductTile,
          .shared_bytes = 2 * kProductTile * (kProductTile + 1) * sizeof(float)};
}

ColumnSumPlan column_sum_plan(int64_t rows, int64_t columns, int values) {
  constexpr int64_t kPartsMax = 256;
  ColumnSumPlan plan;
  plan.rows_at_once = ceil_divided(rows, row_parts(rows, kPartsMax));
  plan.parts = rows == 0 ? 0 : ceil_divided(rows, plan.rows_at_once);
  plan.partial_shape = column_sums_shape("column_sum_parts", columns, plan.parts, values, 1);
  return plan;
}

size_t column_sum_bytes(int64_t rows, int64_t columns) {
  return static_cast<size_t>(column_sum_plan(rows, columns, 1).parts * columns) * sizeof(float);
}

}  // namespace lockstep::kernels
