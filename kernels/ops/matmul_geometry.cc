#include "kernels/ops/matmul_geometry.h"

#include <algorithm>

#include "kernels/ops/geometry.h"

namespace lockstep {

namespace {

constexpr int64_t kPartRows = 256;  // at least, but for the last
constexpr int64_t kPartsMax = 256;
constexpr int kTotalThreads = 128;

}  // namespace

LaunchShape plain_product_shape(int64_t rows, int64_t columns) {
  return {.name = "plain_product",
          .blocks = {ceil_divided(columns, kProductTile), ceil_divided(rows, kProductTile)},
          .threads = kProductTile * kProductTile,
          .shared_bytes = 2 * kProductTile * (kProductTile + 1) * sizeof(float)};
}

LaunchShape round_bias_shape(int64_t count) {
  return {.name = "round_bias",
          .blocks = {ceil_divided(count, kTotalThreads)},
          .threads = kTotalThreads};
}

ColumnSumPlan column_sum_plan(int64_t rows, int64_t columns, int values) {
  ColumnSumPlan plan;
  const int64_t parts = std::clamp<int64_t>(ceil_divided(rows, kPartRows), 1, kPartsMax);
  plan.rows_at_once = ceil_divided(rows, parts);
  plan.parts = plan.rows_at_once == 0 ? 0 : ceil_divided(rows, plan.rows_at_once);
  const int64_t block_columns = int64_t{kWarpThreads} * values;
  plan.partial_shape = {
      .name = "column_sum_parts",
      .blocks = {ceil_divided(columns, block_columns), plan.parts},
      .threads = kWarpThreads * kColumnSumWarps,
      .shared_bytes = static_cast<size_t>(kColumnSumWarps * block_columns) * sizeof(float)};
  plan.total_shape = {.name = "column_sum_total",
                      .blocks = {ceil_divided(columns, kTotalThreads)},
                      .threads = kTotalThreads};
  return plan;
}

size_t column_sum_bytes(int64_t rows, int64_t columns) {
  return static_cast<size_t>(column_sum_plan(rows, columns, 1).parts * columns) * sizeof(float);
}

}  // namespace lockstep
