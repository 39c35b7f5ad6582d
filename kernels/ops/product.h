// Small single-threaded matrix products for attention and own_gemm; include after
// kernels/ops/simd.h.
#pragma once

#include "kernels/ops/simd.h"

namespace lockstep::kernels::LOCKSTEP_ISA {
namespace {

// c[m,n] = a b, or c += a b. Element (i,k) of a is a[i*a_row + k*a_col], same for b; rows of c are
// c_row apart. Every element of c is summed over k in ascending order, for any sizes.
struct Product {
  const float* a = nullptr;
  int64_t a_row = 0;
  int64_t a_col = 1;
  const float* b = nullptr;
  int64_t b_row = 0;
  int64_t b_col = 1;
  float* c = nullptr;
  int64_t c_row = 0;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool accumulate = false;
};

// Tile size: kTileRows rows of kTileVectors vectors. The rows * vectors accumulators, the vectors
// of b and one broadcast element of a must fit in the registers.
inline constexpr int kTileRows = kRegisters == 32 ? 8 : 4;
inline constexpr int kTileVectors = 2;
inline constexpr int64_t kPanel = kTileVectors * kLanes;
// Number of k processed together, so that a block of a stays in the cache for all columns.
inline constexpr int64_t kDepth = 256;

// Computes one tile: reads whole vectors of b, b_row apart, and writes `columns` columns of c.
template <int kRows, int kVectors>
inline void tile(const Product& p, const float* a, const float* b, float* c, int64_t columns) {
  Vec sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      const int64_t left = min_of(columns - j * kLanes, kLanes);
      sums[i][j] = Vec{};
      if (p.accumulate && left > 0) sums[i][j] = load_n(c + i * p.c_row + j * kLanes, left);
    }
  }
  const int64_t a_row = p.a_row, a_col = p.a_col, b_row = p.b_row;
  for (int64_t k = 0; k < p.k; ++k) {
    Vec columns_of_b[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) columns_of_b[j] = load(b + j * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const float element = a[i * a_row];
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sums[i][j] += columns_of_b[j] * element;
    }
    a += a_col;
    b += b_row;
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      const int64_t left = min_of(columns - j * kLanes, kLanes);
      if (left > 0) store_n(c + i * p.c_row + j * kLanes, sums[i][j], left);
    }
  }
}

template <int kVectors>
inline void rows_of_panel(const Product& p, const float* b, int64_t column, int64_t columns) {
  int64_t i = 0;
  const auto at_a = [&] { return p.a + i * p.a_row; };
  const auto at_c = [&] { return p.c + i * p.c_row + column; };
  for (; i + kTileRows <= p.m; i += kTileRows) {
    tile<kTileRows, kVectors>(p, at_a(), b, at_c(), columns);
  }
  if (i + 4 <= p.m) {
    tile<4, kVectors>(p, at_a(), b, at_c(), columns);
    i += 4;
  }
  if (i + 2 <= p.m) {
    tile<2, kVectors>(p, at_a(), b, at_c(), columns);
    i += 2;
  }
  if (i < p.m) tile<1, kVectors>(p, at_a(), b, at_c(), columns);
}

inline void panel(const Product& p, const float* b, int64_t column, int64_t columns) {
  if (columns > kLanes) {
    rows_of_panel<2>(p, b, column, columns);
  } else {
    rows_of_panel<1>(p, b, column, columns);
  }
}

// First copies the columns of b into whole vectors; k is at most kDepth.
inline void packed_panel(const Product& p, int64_t column, int64_t columns) {
  alignas(64) float packed[kDepth * kPanel];
  for (int64_t j = 0; j < kPanel; ++j) {
    const float* from = p.b + (column + j) * p.b_col;
    for (int64_t k = 0; k < p.k; ++k) {
      packed[k * kPanel + j] = j < columns ? from[k * p.b_row] : 0.0f;
    }
  }
  Product part = p;
  part.b_row = kPanel;
  panel(part, packed, column, columns);
}

// Computes columns [begin, end) of c; begin is a multiple of kPanel.
inline void product_columns(const Product& p, int64_t begin, int64_t end) {
  for (int64_t k = 0; k < max_of(1, p.k); k += kDepth) {
    Product part = p;
    part.k = min_of(kDepth, p.k - k);
    part.a = p.a + k * p.a_col;
    part.b = p.b + k * p.b_row;
    part.accumulate = p.accumulate || k > 0;
    for (int64_t column = begin; column < end; column += kPanel) {
      const int64_t columns = min_of(kPanel, end - column);
      if (part.b_col == 1 && columns % kLanes == 0) {
        panel(part, part.b + column, column, columns);
      } else {
        packed_panel(part, column, columns);
      }
    }
  }
}

inline void product(const Product& p) {
  product_columns(p, 0, p.n);
}

}  // namespace
}  // namespace lockstep::kernels::LOCKSTEP_ISA
