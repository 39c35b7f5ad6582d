#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/dtype.h"
#include "kernels/ops/matmul.h"

namespace lockstep {

// c[M,N] = A B, or c += A B, in fp32, row-major and dense. A is a[M,K], or a[K,M] transposed; B is
// b[K,N], or b[N,K] transposed. Both factors are of one dtype; bf16 only where
// cpu_matmul_support().native_bf16.
struct Gemm {
  ConstView a = {};
  ConstView b = {};
  const float* bias = nullptr;  // [N], added to every row; or null. Not together with accumulate.
  float* c = nullptr;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
};

// On threads() threads. Twins: gemm_dnnl.cc (oneDNN), gemm_own.cc (own_gemm of this CPU).
void gemm(const Gemm& args);

// Whether products of this precision are made in bf16 here.
bool matmul_in_bf16(Precision precision);
// Of a factor that is converted in a workspace, rounded up so that the next one is aligned.
size_t matmul_factor_bytes(int64_t count, DType dtype);

}  // namespace lockstep
