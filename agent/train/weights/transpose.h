#pragma once

#include <cstdint>

namespace lockstep::train {

// The size of a row-major matrix.
struct MatrixSize {
  int64_t rows = 0;
  int64_t columns = 0;
};

// Columns [begin, end) of a matrix.
struct ColumnRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// to[c - begin, r] = from[r, c] for the columns c of the range: rows of the transpose. `from` and
// `to` don't overlap.
void transpose_columns(const float* from, MatrixSize size, ColumnRange columns, float* to);

// to[c, r] = from[r, c]. `from` and `to` don't overlap.
void transpose(const float* from, MatrixSize size, float* to);

}  // namespace lockstep::train
