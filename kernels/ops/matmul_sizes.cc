#include <algorithm>

#include "kernels/ops/blas/blas.h"
#include "kernels/ops/gemm.h"
#include "kernels/ops/matmul.h"
#include "kernels/ops/matmul_geometry.h"

namespace lockstep::kernels {

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

// On the CPU, kBf16 needs room for both factors, converted to bf16, or to fp32 if this CPU computes
// in fp32. Factors in bf16 are only allowed with kBf16. On CUDA the library's part comes first,
// then a converted bias.
size_t matmul_forward_workspace(const MatmulShape& shape, Precision precision, DeviceType type) {
  if (type == DeviceType::kCuda) {
    return blas::kWorkspaceBytes + matmul_factor_bytes(shape.n, DType::kBf16);
  }
  if (precision == Precision::kF32) return 0;
  const DType converted = matmul_in_bf16(precision) ? DType::kBf16 : DType::kF32;
  return matmul_factor_bytes(shape.m * shape.k, converted) +
         matmul_factor_bytes(shape.n * shape.k, converted);
}

// On CUDA the parts of dbias and then the library use the same memory.
size_t matmul_backward_workspace(const MatmulShape& shape, Precision precision, DeviceType type) {
  if (type == DeviceType::kCuda) {
    return std::max(blas::kWorkspaceBytes, column_sum_bytes(shape.m, shape.n));
  }
  if (precision == Precision::kF32) return 0;
  const DType converted = matmul_in_bf16(precision) ? DType::kBf16 : DType::kF32;
  return matmul_factor_bytes(shape.m * shape.n, converted) +
         matmul_forward_workspace(shape, precision, type);
}

}  // namespace lockstep::kernels
