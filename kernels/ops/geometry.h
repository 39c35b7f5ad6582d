#pragma once

#include <cstdint>

#include "kernels/device/launch_shape.h"

// How the kernels of the ops are laid over threads: pure functions of sizes.
namespace lockstep {

constexpr int64_t ceil_divided(int64_t n, int64_t by) {
  return (n + by - 1) / by;
}

// Each thread has `per_thread` consecutive elements of `count`.
constexpr LaunchShape elements_shape(const char* name, int64_t count, int per_thread) {
  constexpr int kThreads = 256;
  return {.name = name,
          .blocks = {.x = ceil_divided(count, int64_t{kThreads} * per_thread)},
          .threads = kThreads};
}

// Each warp has a row.
inline constexpr int kRowsOfBlock = 4;
constexpr LaunchShape warp_rows_shape(const char* name, int64_t rows) {
  return {.name = name,
          .blocks = {.x = ceil_divided(rows, kRowsOfBlock)},
          .threads = kRowsOfBlock * kWarpThreads};
}

// Each block has a row, so many threads that each has about 32 of its columns, and shared memory
// for `shared_bytes_of_warp` a warp.
constexpr LaunchShape block_rows_shape(const char* name, int64_t rows, int64_t columns,
                                       size_t shared_bytes_of_warp) {
  constexpr int64_t kColumnsOfThread = 32, kWarpsMax = 16;
  const int64_t wanted = ceil_divided(columns, kColumnsOfThread * kWarpThreads);
  const int64_t warps = wanted < 1 ? 1 : wanted > kWarpsMax ? kWarpsMax : wanted;
  return {.name = name,
          .blocks = {.x = rows},
          .threads = static_cast<int>(warps) * kWarpThreads,
          .shared_bytes = static_cast<size_t>(warps) * shared_bytes_of_warp};
}

// Rows with strips of columns: blocks (row, strip), each thread `per_thread` columns.
constexpr LaunchShape row_strips_shape(const char* name, int64_t rows, int64_t columns,
                                       int per_thread) {
  constexpr int kThreads = 128;
  return {.name = name,
          .blocks = {.x = rows, .y = ceil_divided(columns, int64_t{kThreads} * per_thread)},
          .threads = kThreads};
}

// Sums over rows, for each column: blocks (strip, part). A strip is 32 lanes with `per_lane`
// columns each; a part is a share of the rows, which the warps of its block take in turn. Shared
// memory for `sums` floats a column and warp.
inline constexpr int kColumnWarps = 8;
constexpr LaunchShape column_sums_shape(const char* name, int64_t columns, int64_t parts,
                                        int per_lane, int sums) {
  const int strip = kWarpThreads * per_lane;
  return {.name = name,
          .blocks = {.x = ceil_divided(columns, strip), .y = parts},
          .threads = kColumnWarps * kWarpThreads,
          .shared_bytes = static_cast<size_t>(kColumnWarps * strip * sums) * sizeof(float)};
}

// In how many parts so many rows are summed, at most `most`: each warp gets 8 rows or more.
constexpr int64_t row_parts(int64_t rows, int64_t most) {
  const int64_t worth = ceil_divided(rows, 8 * kColumnWarps);
  return worth < 1 ? 1 : worth > most ? most : worth;
}

}  // namespace lockstep
