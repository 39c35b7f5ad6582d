#pragma once

#include <cstdint>

#include "kernels/device/launch_shape.h"

// How the kernels of the ops are laid over threads: pure functions of sizes. Each shape has its
// constant for the threads of a block, which its kernels name as their __launch_bounds__, so that
// the compiler leaves registers for all of them.
namespace lockstep {

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

// Each warp has a row.
inline constexpr int kRowsOfBlock = 4;
inline constexpr int kWarpRowThreads = kRowsOfBlock * kWarpThreads;
constexpr LaunchShape warp_rows_shape(const char* name, int64_t rows) {
  return {
      .name = name, .blocks = {.x = ceil_divided(rows, kRowsOfBlock)}, .threads = kWarpRowThreads};
}

// Each block has a row, so many threads that each has about 32 of its columns, and shared memory
// for `shared_bytes_of_warp` a warp.
inline constexpr int kBlockRowThreads = 512;  // at most
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

// Rows with strips of columns: blocks (row, strip), each thread `per_thread` columns.
inline constexpr int kRowStripThreads = 128;
constexpr LaunchShape row_strips_shape(const char* name, int64_t rows, int64_t columns,
                                       int per_thread) {
  return {.name = name,
          .blocks = {.x = rows, .y = ceil_divided(columns, int64_t{kRowStripThreads} * per_thread)},
          .threads = kRowStripThreads};
}

// Sums over rows, for each column: blocks (strip, part). A strip is 32 lanes with `per_lane`
// columns each; a part is a share of the rows, which the warps of its block take in turn. Shared
// memory for `sums` floats a column and warp.
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

// In how many parts so many rows are summed, at most `most`: each warp gets 8 rows or more.
constexpr int64_t row_parts(int64_t rows, int64_t most) {
  const int64_t worth = ceil_divided(rows, 8 * kColumnWarps);
  return worth < 1 ? 1 : worth > most ? most : worth;
}

}  // namespace lockstep
