#pragma once

#include "kernels/ops/gemm.h"

namespace lockstep::kernels {

// gemm() without a library, fp32 only, with this CPU's best instruction set. gemm_own.cc uses it;
// tests and benchmarks compare the library with it.
void own_gemm(const Gemm& args);

}  // namespace lockstep::kernels
