#include "kernels/ops/embedding_geometry.h"

#include <algorithm>
#include <bit>

#include "kernels/ops/geometry.h"

namespace lockstep::kernels {

namespace {

constexpr int kSortWarps = kTokenSortThreads / kWarpThreads;

constexpr size_t ints(int64_t count) {
  return static_cast<size_t>(count) * sizeof(int32_t);
}

}  // namespace

TokenSortPlan token_sort_plan(const EmbeddingTokens& tokens) {
  // Enough blocks to hide load latency, few enough that each can read the counts of all.
  constexpr int64_t kBlocksMax = 64, kTilesMin = 4;
  TokenSortPlan plan;
  const int bits =
      std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(tokens.vocabulary))));
  plan.passes = (bits + kTokenDigitBits - 1) / kTokenDigitBits;
  const int64_t tiles = ceil_divided(tokens.rows, kTokenSortThreads);
  plan.rows_at_once = std::max(kTilesMin, ceil_divided(tiles, kBlocksMax)) * kTokenSortThreads;
  plan.counting_shape = {.name = "embedding_count_digits",
                         .blocks = {.x = ceil_divided(tokens.rows, plan.rows_at_once)},
                         .threads = kTokenSortThreads,
                         .shared_bytes = ints(kTokenDigits)};
  plan.placing_shape = plan.counting_shape;
  plan.placing_shape.name = "embedding_place_rows";
  plan.placing_shape.shared_bytes = ints(kTokenDigits * (kSortWarps + 1) + kSortWarps);
  return plan;
}

int64_t token_parts(int64_t rows) {
  return ceil_divided(rows, kTokenPart);
}

LaunchShape token_parts_shape(const EmbeddingTokens& tokens, int64_t width, int per_lane) {
  return {.name = "embedding_add_parts",
          .blocks = {.x = ceil_divided(token_parts(tokens.rows), kTokenPartWarps),
                     .y = ceil_divided(width, int64_t{kWarpThreads} * per_lane)},
          .threads = kTokenPartWarps * kWarpThreads};
}

LaunchShape token_joins_shape(const EmbeddingTokens& tokens, int64_t width, int per_lane) {
  LaunchShape shape = column_sums_shape("embedding_join_parts", width, 1, per_lane, 1);
  shape.blocks = {.x = token_parts(tokens.rows), .y = shape.blocks.x};
  return shape;
}

TokenWorkspace token_workspace(const EmbeddingTokens& tokens, int64_t width) {
  const auto rows = static_cast<size_t>(tokens.rows);
  TokenWorkspace at;
  at.unsorted = static_cast<size_t>(2 * token_parts(tokens.rows) * width) * sizeof(float);
  at.sorted = at.unsorted + rows * sizeof(TokenRow);
  at.counts = at.sorted + rows * sizeof(TokenRow);
  at.bytes = at.counts + ints(token_sort_plan(tokens).counting_shape.blocks.x * kTokenDigits);
  return at;
}

size_t embedding_backward_workspace(const EmbeddingTokens& tokens, int64_t width,
                                    DeviceType device) {
  return device == DeviceType::kCpu ? 0 : token_workspace(tokens, width).bytes;
}

}  // namespace lockstep::kernels
