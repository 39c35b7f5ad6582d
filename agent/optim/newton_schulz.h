#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::optim {

struct MatrixShape {
  int64_t rows = 0;
  int64_t columns = 0;

  int64_t count() const { return rows * columns; }
  int64_t shorter() const { return rows < columns ? rows : columns; }
};

// Replaces a matrix by one whose singular vectors are the same and whose singular values, unless
// they were tiny, are between about 0.7 and 1.2:
//   X = x / (|x| + 1e-7), |x| = sqrt(the sum of its squares)
//   five times: A = X X^T; X = a X + (b A + c A A) X, with a = 3.4445, b = -4.775, c = 2.0315
// For a matrix with more rows than columns A = X^T X multiplies from the right: the same values
// from smaller products. Sources: Jordan et al., "Muon: An optimizer for hidden layers in neural
// networks", 2024, https://kellerjordan.github.io/posts/muon/; Bernstein and Newhouse, "Old
// optimizer, new norm: an anthology", 2024. With Precision::kBf16 a GPU keeps all matrices in bf16
// from the division by the norm on. All memory is that of the stream's device.
struct NewtonSchulz {
  float* x = nullptr;    // [rows, columns], overwritten
  float* out = nullptr;  // [rows, columns], not x
  MatrixShape shape = {};
  kernels::Precision precision = kernels::Precision::kF32;  // of the products
  float* gram = nullptr;                                    // [shorter, shorter]
  float* polynomial = nullptr;                              // [shorter, shorter]
  kernels::SquareSum* squares = nullptr;                    // one
  float* factor = nullptr;                                  // one
  kernels::Workspace workspace = {};                        // newton_schulz_workspace()
};

void newton_schulz(const kernels::OpTable& ops, kernels::Stream& stream, const NewtonSchulz& args);

// Returns the bytes of the products' workspace.
size_t newton_schulz_workspace(const MatrixShape& shape, kernels::Precision precision,
                               kernels::DeviceType device);

// Returns the floating-point operations of a matrix, additions and multiplications.
double newton_schulz_flops(const MatrixShape& shape);

}  // namespace lockstep::optim
