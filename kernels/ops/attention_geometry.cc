#include "kernels/ops/attention_geometry.h"

#include "kernels/ops/geometry.h"

namespace lockstep::kernels {

namespace {

constexpr size_t kBf16Bytes = 2;

// Returns the bytes of a tile of `rows` rows.
size_t tile_bytes(const AttentionShape& shape, int64_t rows) {
  return static_cast<size_t>(rows * (shape.head_dim + kAttentionPadding)) * kBf16Bytes;
}

LaunchShape tiles_shape(const char* name, const AttentionShape& shape, int64_t heads,
                        size_t shared_bytes) {
  return {.name = name,
          .blocks = {ceil_divided(shape.sequence, kAttentionTile), heads, shape.batch},
          .threads = kAttentionThreads,
          .shared_bytes = shared_bytes};
}

}  // namespace

bool attention_has_tiles(const AttentionShape& shape, DType dtype) {
  return dtype == DType::kBf16 && (shape.head_dim == 64 || shape.head_dim == 128);
}

// Shared memory holds keys and values; the queries are first loaded into their place.
LaunchShape attention_forward_shape(const AttentionShape& shape) {
  const int groups = attention_query_groups(static_cast<int>(shape.head_dim));
  LaunchShape launch =
      tiles_shape("attention_forward", shape, shape.heads, 2 * tile_bytes(shape, kAttentionTile));
  launch.blocks.x = ceil_divided(shape.sequence, int64_t{kAttentionTile} * groups);
  return launch;
}

// Shared memory holds queries and dout of the block, keys and values of the inner tile.
LaunchShape attention_dq_shape(const AttentionShape& shape) {
  const int64_t inner = attention_inner_tile(static_cast<int>(shape.head_dim));
  return tiles_shape("attention_dq", shape, shape.heads,
                     2 * tile_bytes(shape, kAttentionTile) + 2 * tile_bytes(shape, inner));
}

// Shared memory holds keys and values of the block; queries, dout, log-sum-exp and delta of the
// inner tile.
LaunchShape attention_dkv_shape(const AttentionShape& shape) {
  const int64_t inner = attention_inner_tile(static_cast<int>(shape.head_dim));
  return tiles_shape("attention_dkv", shape, shape.kv_heads,
                     2 * tile_bytes(shape, kAttentionTile) + 2 * tile_bytes(shape, inner) +
                         static_cast<size_t>(2 * inner) * sizeof(float));
}

LaunchShape attention_plain_shape(const AttentionShape& shape, int64_t heads, const char* name) {
  const int64_t rows = shape.batch * heads * shape.sequence;
  return {
      .name = name, .blocks = {ceil_divided(rows, kAttentionWarps)}, .threads = kAttentionThreads};
}

}  // namespace lockstep::kernels
