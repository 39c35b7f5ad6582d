#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/dtype.h"
#include "kernels/ops/matmul.h"

namespace lockstep::kernels {

// c[M,N] = A B, or c += A B, in fp32, row-major and dense. A is a[M,K], or a[K,M] if transposed; B
// is b[K,N], or b[N,K] if transposed. Both factors have the same dtype; bf16 only if
// cpu_matmul_support().native_bf16.
struct Gemm {
  ConstView a = {};
  ConstView b = {};
  const float* bias = nullptr;  // [N], added to every row; or null. Not with accumulate.
  float* c = nullptr;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
};

// Uses threads() threads. Two implementations: gemm_dnnl.cc (oneDNN, and with AVX2 own_gemm for all
// but small products), and gemm_own.cc (own_gemm for this CPU).
void gemm(const Gemm& args);

// Returns whether this CPU computes products of that precision in bf16.
bool matmul_in_bf16(Precision precision);
// Returns the bytes of a factor converted in a workspace, rounded up so that the next factor is
// aligned.
size_t matmul_factor_bytes(int64_t count, DType dtype);

}  // namespace lockstep::kernels
