#pragma once

#include <cstdint>

namespace lockstep::train {

// to[c, r] = from[r, c], for a row-major matrix of rows x columns. They don't overlap.
struct MatrixSize {
  int64_t rows = 0;
  int64_t columns = 0;
};
void transpose(const float* from, MatrixSize size, float* to);

}  // namespace lockstep::train
