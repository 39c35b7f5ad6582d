#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/launch_shape.h"
#include "kernels/ops/attention.h"

// Launch shapes of the kernels in attention.cu; pure.
namespace lockstep::kernels {

// A block of a tensor core kernel has kAttentionTile queries (keys in the dk/dv kernel), 16 per
// warp, and loops over the other side one tile at a time. The forward kernel may have several such
// groups of queries, for which a warp reads keys and values once.
inline constexpr int kAttentionTile = 64;
inline constexpr int kAttentionWarps = kAttentionTile / 16;
inline constexpr int kAttentionThreads = kAttentionWarps * kWarpThreads;
// Rows of a tile in shared memory are padded by this many bf16, so that the eight rows read
// together are in different banks.
inline constexpr int kAttentionPadding = 8;
// Queries or keys per iteration of the backward kernels; limited by the registers.
constexpr int attention_inner_tile(int head_dim) {
  return head_dim <= 64 ? 64 : 32;
}
template <int kHeadDim>
inline constexpr int kAttentionInnerTile = attention_inner_tile(kHeadDim);
// Groups of queries per warp in the forward kernel; limited by the registers.
constexpr int attention_query_groups(int head_dim) {
  return head_dim <= 64 ? 2 : 1;
}
template <int kHeadDim>
inline constexpr int kAttentionQueryGroups = attention_query_groups(kHeadDim);

// Returns whether the tensor core kernels support it: bf16 rows that can be read 16 bytes at a
// time.
bool attention_has_tiles(const AttentionShape& shape, DType dtype);

LaunchShape attention_forward_shape(const AttentionShape& shape);
LaunchShape attention_dq_shape(const AttentionShape& shape);
LaunchShape attention_dkv_shape(const AttentionShape& shape);

// The plain kernels and attention_delta use one warp per row of each head; a lane has every 32nd
// column.
inline constexpr int kAttentionLaneColumns = kAttentionHeadDimMax / kWarpThreads;
LaunchShape attention_plain_shape(const AttentionShape& shape, int64_t heads, const char* name);

}  // namespace lockstep::kernels
