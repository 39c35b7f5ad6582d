#pragma once

#include <cstdint>

#include "kernels/device/launch_shape.h"

// How ops' kernels are mapped to threads: pure functions of sizes. Each shape has a constant for
// the threads of a block. Its kernels use that constant in __launch_bounds__, so that the compiler
// limits registers accordingly.
namespace lockstep::kernels {

constexpr int64_t ceil_divided(int64_t n, int64_t by) {
  return (n + by - 1) / by;
}

// Each thread has `per_thread` consecutive elements of `count`.
inline constexpr int kElementThreads = 256;
constexpr LaunchShape elements_shape(const char* name, int64_t count, int per_thread) {
  return {.name = name,
          .blocks = {.x = ceil_divided(count, int64_t{kElementThreads} * per_thread)},
          .threads = kElementThreads};
}

// One row per warp.
inline constexpr int kRowsOfBlock = 4;
inline constexpr int kWarpRowThreads = kRowsOfBlock * kWarpThreads;
constexpr LaunchShape warp_rows_shape(const char* name, int64_t rows) {
  return {
      .name = name, .blocks = {.x = ceil_divided(rows, kRowsOfBlock)}, .threads = kWarpRowThreads};
}

// One row per block. The block has enough threads, up to kBlockRowThreads, that each has about 32
// columns, and `shared_bytes_of_warp` bytes of shared memory per warp.
inline constexpr int kBlockRowThreads = 512;  // maximum
constexpr LaunchShape block_rows_shape(const char* name, int64_t rows, int64_t columns,
                                       size_t shared_bytes_of_warp) {
  constexpr int64_t kColumnsOfThread = 32, kWarpsMax = kBlockRowThreads / kWarpThreads;
  const int64_t wanted = ceil_divided(columns, kColumnsOfThread * kWarpThreads);
  const int64_t warps = wanted < 1 ? 1 : wanted > kWarpsMax ? kWarpsMax : wanted;
  return {.name = name,
          .blocks = {.x = rows},
          .threads = static_cast<int>(warps) * kWarpThreads,
          .shared_bytes = static_cast<size_t>(warps) * shared_bytes_of_warp};
}

// Rows split into strips of columns: blocks (row, strip), `per_thread` columns per thread.
inline constexpr int kRowStripThreads = 128;
constexpr LaunchShape row_strips_shape(const char* name, int64_t rows, int64_t columns,
                                       int per_thread) {
  return {.name = name,
          .blocks = {.x = rows, .y = ceil_divided(columns, int64_t{kRowStripThreads} * per_thread)},
          .threads = kRowStripThreads};
}

// Sums over rows, for each column: blocks (strip, part). A strip is 32 lanes with `per_lane`
// columns each. A part is a share of the rows, which the warps of the block take in turn. Shared
// memory holds `sums` floats per column and warp.
inline constexpr int kColumnWarps = 8;
inline constexpr int kColumnThreads = kColumnWarps * kWarpThreads;
constexpr LaunchShape column_sums_shape(const char* name, int64_t columns, int64_t parts,
                                        int per_lane, int sums) {
  const int strip = kWarpThreads * per_lane;
  return {.name = name,
          .blocks = {.x = ceil_divided(columns, strip), .y = parts},
          .threads = kColumnThreads,
          .shared_bytes = static_cast<size_t>(kColumnWarps * strip * sums) * sizeof(float)};
}

// The second pass of such sums: blocks (strip of 32 columns, target), whose warps share the parts.
constexpr LaunchShape add_parts_shape(int64_t columns, int64_t targets) {
  LaunchShape shape = column_sums_shape("add_parts", columns, 1, 1, 1);
  shape.blocks.y = targets;
  return shape;
}

// A norm's backward in one pass: blocks take parts of the rows, `per_thread` columns per thread and
// kNormRows rows at a time. Shared memory holds two halves of kNormSums floats per warp. With more
// than kNormThreadsMax threads it is not launchable.
inline constexpr int kNormThreadsMax = 512;
inline constexpr int kNormRows = 2;
inline constexpr int kNormSums = 2 * kNormRows;
// Returns the number of parts of `rows` rows, at most `most`: each has some turns, so that the next
// rows are loaded during the others.
constexpr int64_t norm_parts(int64_t rows, int64_t most) {
  constexpr int64_t kTurns = 4;
  const int64_t worth = ceil_divided(rows, kTurns * kNormRows);
  return worth < 1 ? 1 : worth > most ? most : worth;
}
constexpr LaunchShape norm_backward_shape(const char* name, int64_t columns, int64_t parts,
                                          int per_thread) {
  const int64_t warps = ceil_divided(columns, int64_t{per_thread} * kWarpThreads);
  return {.name = name,
          .blocks = {.x = parts},
          .threads = static_cast<int>(warps) * kWarpThreads,
          .shared_bytes = static_cast<size_t>(warps) * 2 * kNormSums * sizeof(float)};
}

// Returns the number of parts in which `rows` rows are summed, at most `most`: each warp gets 8
// rows or more.
constexpr int64_t row_parts(int64_t rows, int64_t most) {
  const int64_t worth = ceil_divided(rows, 8 * kColumnWarps);
  return worth < 1 ? 1 : worth > most ? most : worth;
}

}  // namespace lockstep::kernels
