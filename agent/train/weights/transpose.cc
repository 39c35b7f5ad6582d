#include "agent/train/weights/transpose.h"

#include <algorithm>

namespace lockstep::train {
namespace {

constexpr int64_t kTile = 32;  // two tiles of floats fit in the first cache

void transpose_tile(const float* from, MatrixSize size, int64_t row, int64_t column, float* to) {
  const int64_t row_end = std::min(row + kTile, size.rows);
  const int64_t column_end = std::min(column + kTile, size.columns);
  for (int64_t c = column; c < column_end; ++c) {
    for (int64_t r = row; r < row_end; ++r) to[c * size.rows + r] = from[r * size.columns + c];
  }
}

}  // namespace

void transpose(const float* from, MatrixSize size, float* to) {
  for (int64_t row = 0; row < size.rows; row += kTile) {
    for (int64_t column = 0; column < size.columns; column += kTile) {
      transpose_tile(from, size, row, column, to);
    }
  }
}

}  // namespace lockstep::train
