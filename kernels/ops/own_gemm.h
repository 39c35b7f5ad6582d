#pragma once

#include "kernels/ops/gemm.h"

namespace lockstep {

// gemm() without a library, fp32 only, for the best instruction set of this CPU: what gemm_own.cc
// uses, and what tests and benches compare the library with.
void own_gemm(const Gemm& args);

}  // namespace lockstep
