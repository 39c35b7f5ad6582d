#include "kernels/ops/matmul_geometry.h"

#include <algorithm>

namespace lockstep {

namespace {

constexpr int64_t kPartRows = 256;  // at least, but for the last
constexpr int64_t kPartsMax = 256;
constexpr int kTotalThreads = 128;

int64_t quotient_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

LaunchShape plain_product_shape(int64_t rows, int64_t columns) {
  return {.name = "plain_product",
          .blocks = {quotient_up(columns, kProductTile), quotient_up(rows, kProductTile)},
          .threads = kProductTile * kProductTile,
          .shared_bytes = 2 * kProductTile * (kProductTile + 1) * sizeof(float)};
}

LaunchShape round_bias_shape(int64_t count) {
  return {.name = "round_bias",
          .blocks = {quotient_up(count, kTotalThreads)},
          .threads = kTotalThreads};
}

ColumnSumPlan column_sum_plan(int64_t rows, int64_t columns, int values) {
  ColumnSumPlan plan;
  const int64_t parts = std::clamp<int64_t>(quotient_up(rows, kPartRows), 1, kPartsMax);
  plan.rows_at_once = quotient_up(rows, parts);
  plan.parts = plan.rows_at_once == 0 ? 0 : quotient_up(rows, plan.rows_at_once);
  const int64_t block_columns = int64_t{kWarpThreads} * values;
  plan.partial_shape = {
      .name = "column_sum_parts",
      .blocks = {quotient_up(columns, block_columns), plan.parts},
      .threads = kWarpThreads * kColumnSumWarps,
      .shared_bytes = static_cast<size_t>(kColumnSumWarps * block_columns) * sizeof(float)};
  plan.total_shape = {.name = "column_sum_total",
                      .blocks = {quotient_up(columns, kTotalThreads)},
                      .threads = kTotalThreads};
  return plan;
}

size_t column_sum_bytes(int64_t rows, int64_t columns) {
  return static_cast<size_t>(column_sum_plan(rows, columns, 1).parts * columns) * sizeof(float);
}

}  // namespace lockstep
