#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/device/device.h"
#include "kernels/ops/cpu_level.h"

namespace lockstep::kernels {

// kF32: everything in fp32. kBf16: both factors are rounded to bf16 (round to nearest even) and
// multiplied with fp32 accumulation, where matmul_support() says that the device does it natively;
// elsewhere kBf16 computes as kF32. On CUDA the dtype of the tensors decides: bf16 factors are
// multiplied in bf16, fp32 ones in fp32 (not in TF32), whatever the precision.
enum class Precision : uint8_t { kF32, kBf16 };

enum class Activation : uint8_t { kNone, kGelu };

// y[M,N] = activation(x[M,K] * weight[N,K]^T + bias[N]).
// x and weight may be fp32 or bf16; bf16 ones need Precision::kBf16 and save its conversion: cast
// the weights once a step and pass the copies.
// On CUDA x, weight, y and pre_activation are all fp32 or all bf16; sums are fp32 and rounded once,
// but where the library has no epilogue for GELU, or the bias: then also before that.
struct MatmulForward {
  ConstView x = {};       // [M,K]
  ConstView weight = {};  // [N,K]
  ConstView bias = {};    // [N] fp32 (on CUDA rounded to y's dtype first, or in that), or null
  View y = {};            // [M,N]
  View pre_activation =
      {};  // [M,N]: what the activation was applied to, for backward; or null. Not y.
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  Activation activation = Activation::kNone;
  Precision precision = Precision::kF32;
  Workspace workspace = {};  // matmul_forward_workspace({m, n, k}, precision, device's type)
};

// dx[M,K] = dy * weight, or with x_pre_activation (the M,K values whose GELU was x) that times
// GELU'(x_pre_activation); dweight[N,K] += dy^T * x; dbias[N] += column sums of dy, in fixed order.
// On CUDA dy, x, weight, x_pre_activation and dx are all fp32 or all bf16, dweight and dbias fp32.
struct MatmulBackward {
  ConstView dy = {};                // [M,N]: the gradient before the activation (see GeluBackward)
  ConstView x = {};                 // [M,K]; needed for dweight
  ConstView weight = {};            // [N,K]; needed for dx
  ConstView x_pre_activation = {};  // [M,K] or null
  View dx = {};                     // [M,K], overwritten; null: not computed
  View dweight = {};                // [N,K], added to; null: not computed
  View dbias = {};                  // [N], added to; null: not computed
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  Precision precision = Precision::kF32;
  Workspace workspace = {};  // matmul_backward_workspace({m, n, k}, precision, device's type)
};

struct MatmulShape {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;

  bool operator==(const MatmulShape&) const = default;
};

// On CUDA mostly what cuBLASLt may use; see kernels/ops/blas/blas.h for its handle and choices.
size_t matmul_forward_workspace(const MatmulShape& shape, Precision precision, DeviceType type);
size_t matmul_backward_workspace(const MatmulShape& shape, Precision precision, DeviceType type);

struct MatmulSupport {
  std::string library;       // "oneDNN 2.6.3", "own, oneDNN 2.6.3", "own"
  std::string isa;           // "avx512_core_amx", "x86-64-v3", ...
  bool native_bf16 = false;  // false: Precision::kBf16 computes as kF32
  CpuLevel level = CpuLevel::kBaseline;
};

// The library and instruction set chosen on this machine, below cpu_level_cap(); the same in every
// call. Ranks compare it when a round forms.
MatmulSupport cpu_matmul_support();

}  // namespace lockstep::kernels
