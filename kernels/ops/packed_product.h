// Single-threaded matrix products of packed operands, for own_gemm; include after
// kernels/ops/simd.h.
//
// A tile of c is summed in registers, from a sliver of a and a sliver of b: copies of a few rows
// of a, and columns of b, in the order in which the tile reads them. A sliver of b stays in the
// first cache while the slivers of a block of a, which fits in the second cache, pass by.
// Source: Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", ACM
// Transactions on Mathematical Software, 2008.
#pragma once

#include "kernels/ops/simd.h"

namespace lockstep::kernels::LOCKSTEP_ISA {
namespace {

// The accumulators, two vectors of b and one element of a must fit in the registers.
inline constexpr int kTileRows = kRegisters == 32 ? 12 : 6;
inline constexpr int kTileColumns = 2 * kLanes;
// Number of k summed in registers at a time.
inline constexpr int64_t kDepth = kLanes == 16 ? 192 : 384;
// Sizes of the block of a and of the panel of b that are packed at a time.
inline constexpr int64_t kBlockRows = 192;
inline constexpr int64_t kPanelColumns = 640;
static_assert(kBlockRows % kTileRows == 0 && kPanelColumns % kTileColumns == 0);

// Rows of a, or columns of b: element k of line i is data[i * across + k * along].
struct Lines {
  const float* data;
  int64_t across;
  int64_t along;

  Lines from(int64_t line, int64_t k) const {
    return {data + line * across + k * along, across, along};
  }
};

// c[m,n] = a b + bias, or c += a b; rows of c are c_row apart. Every element of c is summed over k
// in ascending order, in parts that depend on k alone.
struct PackedProduct {
  Lines a;
  Lines b;
  const float* bias;  // [n], or null
  float* c;
  int64_t c_row;
  int64_t m;
  int64_t n;
  int64_t k;
  bool accumulate;
};

// Floats of a packed sliver. A copy of whole vectors may write past its end.
template <int kLines>
constexpr int64_t sliver_floats(int64_t depth) {
  return depth * kLines + (kLines % kLanes == 0 ? 0 : kLanes);
}

// to[k][line] for k from `begin` on; zeroes for lines past `count`.
template <int kLines>
void pack_elements(const Lines& lines, int64_t count, int64_t begin, int64_t depth, float* to) {
  for (int64_t k = begin; k < depth; ++k) {
    for (int64_t i = 0; i < kLines; ++i) {
      to[k * kLines + i] = i < count ? lines.data[i * lines.across + k * lines.along] : 0.0f;
    }
  }
}

// Packs kLanes elements of the lines kFirst, kFirst + 1, ... of a sliver. Where vectors reach past
// the sliver's lines, they write to the next element's first lines, which are to be packed later.
template <int kLines, int kFirst>
inline void pack_square(const float* from, int64_t across, float* to) {
  constexpr int kCount = kLines - kFirst < kLanes ? kLines - kFirst : kLanes;
  constexpr int64_t kSliversAhead = 2;
  Vec square[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    const float* line = from + (kFirst + (i < kCount ? i : kCount - 1)) * across;
    square[i] = load(line);
    if (i < kCount) __builtin_prefetch(line + kSliversAhead * kLines * across);
  }
  transpose_square(square);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) store(to + i * kLines + kFirst, square[i]);
}

// Packs whole slivers of lines whose elements are adjacent. Returns the number of lines packed.
template <int kLines>
int64_t pack_adjacent_elements(const Lines& lines, int64_t count, int64_t depth, float* to) {
  int64_t line = 0;
  for (; line + kLines <= count; line += kLines, to += sliver_floats<kLines>(depth)) {
    const Lines sliver = lines.from(line, 0);
    int64_t k = 0;
    for (; k + kLanes <= depth; k += kLanes) {
      if constexpr (kLines > kLanes) {  // first, since it may write past the lines
        pack_square<kLines, kLanes>(sliver.data + k, lines.across, to + k * kLines);
      }
      pack_square<kLines, 0>(sliver.data + k, lines.across, to + k * kLines);
    }
    pack_elements<kLines>(sliver, kLines, k, depth, to);
  }
  return line;
}

// Packs slivers of adjacent lines, as long as whole vectors can be read. Returns the number of
// lines packed.
template <int kLines>
int64_t pack_adjacent_lines(const Lines& lines, int64_t count, int64_t depth, float* to) {
  constexpr int64_t kRead = (kLines + kLanes - 1) / kLanes * kLanes;
  constexpr int64_t kAhead = 8, kCacheLine = 16;
  int64_t line = 0;
  for (int64_t k = 0; k < depth; ++k) {
    const float* from = lines.data + k * lines.along;
    for (int64_t i = 0; i < count; i += kCacheLine) {
      __builtin_prefetch(from + kAhead * lines.along + i);
    }
    float* at = to + k * kLines;
    for (line = 0; line + kRead <= count; line += kLines, at += sliver_floats<kLines>(depth)) {
#pragma GCC unroll 4
      for (int64_t i = 0; i < kRead; i += kLanes) store(at + i, load(from + line + i));
    }
  }
  return line;
}

template <int kLines>
__attribute__((noinline)) void pack(const Lines& lines, int64_t count, int64_t depth, float* to) {
  int64_t done = 0;
  if (lines.across == 1) {
    done = pack_adjacent_lines<kLines>(lines, count, depth, to);
  } else if (lines.along == 1) {
    done = pack_adjacent_elements<kLines>(lines, count, depth, to);
  }
  for (; done < count; done += kLines) {
    pack_elements<kLines>(lines.from(done, 0), count - done, 0, depth,
                          to + done / kLines * sliver_floats<kLines>(depth));
  }
}

struct Tile {
  Vec sums[kTileRows][2];
};

inline void add_outer_product(const float* a, const float* b, Tile& tile) {
  const Vec left = load(b), right = load(b + kLanes);
#pragma GCC unroll 12
  for (int i = 0; i < kTileRows; ++i) {
    tile.sums[i][0] += left * a[i];
    tile.sums[i][1] += right * a[i];
  }
}

// Sums one tile; prefetches the next sliver of a.
inline Tile sum_tile(const float* a, const float* b, int64_t depth) {
  constexpr int64_t kSteps = 8, kCacheLine = 16;
  Tile tile;
#pragma GCC unroll 12
  for (int i = 0; i < kTileRows; ++i) tile.sums[i][0] = tile.sums[i][1] = Vec{};
  const float* next = a + sliver_floats<kTileRows>(depth);
  int64_t k = 0;
  for (; k + kSteps <= depth; k += kSteps) {
#pragma GCC unroll 8
    for (int64_t i = 0; i < kSteps * kTileRows; i += kCacheLine) __builtin_prefetch(next + i);
    next += kSteps * kTileRows;
#pragma GCC unroll 8
    for (int step = 0; step < kSteps; ++step, a += kTileRows, b += kTileColumns) {
      add_outer_product(a, b, tile);
    }
  }
  for (; k < depth; ++k, a += kTileRows, b += kTileColumns) add_outer_product(a, b, tile);
  return tile;
}

// The part of c that the slivers of a block of a make with one sliver of b.
struct Strip {
  float* c;
  int64_t c_row;
  int64_t rows;
  int64_t columns;
  const float* bias;  // of the columns, or null
  bool add;           // to what is in c
};

inline void store_tile(const Tile& tile, const Strip& strip, float* c) {
  const Vec left = strip.bias ? load(strip.bias) : Vec{};
  const Vec right = strip.bias ? load(strip.bias + kLanes) : Vec{};
#pragma GCC unroll 12
  for (int i = 0; i < kTileRows; ++i, c += strip.c_row) {
    const Vec sums[] = {tile.sums[i][0] + left, tile.sums[i][1] + right};
    store(c, strip.add ? load(c) + sums[0] : sums[0]);
    store(c + kLanes, strip.add ? load(c + kLanes) + sums[1] : sums[1]);
  }
}

// A tile of which only `rows` rows and the strip's columns are in c.
__attribute__((noinline)) void edge_tile(const float* a, const float* b, int64_t depth,
                                         const Strip& strip, int64_t rows, float* c) {
  const Tile tile = sum_tile(a, b, depth);
  float sums[kTileRows][kTileColumns];
  __builtin_memcpy(sums, &tile, sizeof sums);
  for (int64_t i = 0; i < rows; ++i, c += strip.c_row) {
    for_vectors(strip.columns, [&](int64_t j, int64_t n) {
      const Vec sum = load(sums[i] + j) + (strip.bias ? load_n(strip.bias + j, n) : Vec{});
      store_n(c + j, strip.add ? load_n(c + j, n) + sum : sum, n);
    });
  }
}

__attribute__((noinline)) void compute_strip(const float* a, const float* b, int64_t depth,
                                             const Strip& strip) {
  float* c = strip.c;
  int64_t row = 0;
  const auto next = [&] {
    row += kTileRows;
    a += sliver_floats<kTileRows>(depth);
    c += kTileRows * strip.c_row;
  };
  for (; strip.columns == kTileColumns && row + kTileRows <= strip.rows; next()) {
#pragma GCC unroll 12
    for (int i = 0; i < kTileRows; ++i) {
      __builtin_prefetch(c + i * strip.c_row + kTileColumns - 1, 1);
    }
    store_tile(sum_tile(a, b, depth), strip, c);
  }
  for (; row < strip.rows; next()) {
    edge_tile(a, b, depth, strip, min_of(kTileRows, strip.rows - row), c);
  }
}

// Returns the size of the first parts when `count` is split into the fewest parts of at most
// `most`, each a multiple of `unit`.
inline int64_t even_part(int64_t count, int64_t most, int64_t unit) {
  const int64_t parts = (count + most - 1) / most;
  return round_up((count + parts - 1) / parts, unit);
}

// Scratch of packed_product(), in floats.
inline constexpr int64_t kPackedBlockFloats =
    kBlockRows / kTileRows * sliver_floats<kTileRows>(kDepth);
inline constexpr int64_t kPackedPanelFloats =
    kPanelColumns / kTileColumns * sliver_floats<kTileColumns>(kDepth);

// One panel of b with all rows of a, for k from `k` to k + depth.
void add_panel(const PackedProduct& p, int64_t column, int64_t columns, int64_t k, int64_t depth,
               float* scratch) {
  float* packed_a = scratch;
  float* packed_b = scratch + kPackedBlockFloats;
  pack<kTileColumns>(p.b.from(column, k), columns, depth, packed_b);
  const int64_t block = even_part(p.m, kBlockRows, kTileRows);
  for (int64_t row = 0; row < p.m; row += block) {
    const int64_t rows = min_of(block, p.m - row);
    pack<kTileRows>(p.a.from(row, k), rows, depth, packed_a);
    for (int64_t j = 0; j < columns; j += kTileColumns) {
      compute_strip(packed_a, packed_b + j / kTileColumns * sliver_floats<kTileColumns>(depth),
                    depth,
                    {.c = p.c + row * p.c_row + column + j,
                     .c_row = p.c_row,
                     .rows = rows,
                     .columns = min_of(kTileColumns, columns - j),
                     .bias = p.bias && k == 0 ? p.bias + column + j : nullptr,
                     .add = p.accumulate || k > 0});
    }
  }
}

// Expects k > 0, and kPackedBlockFloats + kPackedPanelFloats in scratch.
void packed_product(const PackedProduct& p, float* scratch) {
  const int64_t depths = (p.k + kDepth - 1) / kDepth;
  const int64_t panel = even_part(p.n, kPanelColumns, kTileColumns);
  for (int64_t column = 0; column < p.n; column += panel) {
    for (int64_t i = 0; i < depths; ++i) {
      const int64_t k = p.k * i / depths;
      add_panel(p, column, min_of(panel, p.n - column), k, p.k * (i + 1) / depths - k, scratch);
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels::LOCKSTEP_ISA
