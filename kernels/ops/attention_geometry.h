#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/launch_shape.h"
#include "kernels/ops/attention.h"

// How the kernels of attention.cu are started; pure.
namespace lockstep {

// A block of the tensor cores' kernels has so many queries (or keys, where it makes dk and dv), 16
// a warp, and goes through the others a tile at a time.
inline constexpr int kAttentionTile = 64;
inline constexpr int kAttentionWarps = kAttentionTile / 16;
inline constexpr int kAttentionThreads = kAttentionWarps * kWarpThreads;
// Rows of a tile in shared memory are so many bf16 further apart than they are long, so that the
// eight rows that are read together lie in different banks.
inline constexpr int kAttentionPadding = 8;
// Queries or keys at a time in the backward kernels: what the registers hold.
constexpr int attention_inner_tile(int head_dim) {
  return head_dim <= 64 ? 64 : 32;
}
template <int kHeadDim>
inline constexpr int kAttentionInnerTile = attention_inner_tile(kHeadDim);

// Whether the tensor cores' kernels do it: bf16 rows that are read 16 bytes at a time.
bool attention_has_tiles(const AttentionShape& shape, DType dtype);

LaunchShape attention_forward_shape(const AttentionShape& shape);
LaunchShape attention_dq_shape(const AttentionShape& shape);
LaunchShape attention_dkv_shape(const AttentionShape& shape);

// The plain kernels and delta have one warp for each row of each head; a lane has every 32nd
// column.
inline constexpr int kAttentionLaneColumns = kAttentionHeadDimMax / kWarpThreads;
LaunchShape attention_plain_shape(const AttentionShape& shape, int64_t heads, const char* name);

}  // namespace lockstep
