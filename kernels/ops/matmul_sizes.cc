#include "kernels/ops/gemm.h"
#include "kernels/ops/matmul.h"

namespace lockstep {

namespace {

constexpr size_t kAlignment = 64;

}  // namespace

bool matmul_in_bf16(Precision precision) {
  static const bool native = cpu_matmul_support().native_bf16;
  return precision == Precision::kBf16 && native;
}

size_t matmul_factor_bytes(int64_t count, DType dtype) {
  const size_t bytes = static_cast<size_t>(count) * dtype_bytes(dtype);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// bf16 factors are allowed with kBf16 only; where it computes as kF32 they are the converted ones.
size_t matmul_forward_workspace(const MatmulShape& shape, Precision precision) {
  if (precision == Precision::kF32) return 0;
  const DType converted = matmul_in_bf16(precision) ? DType::kBf16 : DType::kF32;
  return matmul_factor_bytes(shape.m * shape.k, converted) +
         matmul_factor_bytes(shape.n * shape.k, converted);
}

size_t matmul_backward_workspace(const MatmulShape& shape, Precision precision) {
  if (precision == Precision::kF32) return 0;
  const DType converted = matmul_in_bf16(precision) ? DType::kBf16 : DType::kF32;
  return matmul_factor_bytes(shape.m * shape.n, converted) +
         matmul_forward_workspace(shape, precision);
}

}  // namespace lockstep
