#include "agent/train/weights/transpose.h"

#include <algorithm>

namespace lockstep::train {
namespace {

constexpr int64_t kTile = 32;  // two tiles of floats fit in the first cache

// Transposes the rows from `row` on of at most one tile of columns.
void transpose_tile(const float* from, MatrixSize size, int64_t row, ColumnRange columns,
                    float* to) {
  const int64_t row_end = std::min(row + kTile, size.rows);
  for (int64_t c = columns.begin; c < columns.end; ++c, to += size.rows) {
    for (int64_t r = row; r < row_end; ++r) to[r] = from[r * size.columns + c];
  }
}

}  // namespace

void transpose_columns(const float* from, MatrixSize size, ColumnRange columns, float* to) {
  for (int64_t row = 0; row < size.rows; row += kTile) {
    for (int64_t column = columns.begin; column < columns.end; column += kTile) {
      const ColumnRange tile{column, std::min(column + kTile, columns.end)};
      transpose_tile(from, size, row, tile, to + (column - columns.begin) * size.rows);
    }
  }
}

void transpose(const float* from, MatrixSize size, float* to) {
  transpose_columns(from, size, {0, size.columns}, to);
}

}  // namespace lockstep::train
