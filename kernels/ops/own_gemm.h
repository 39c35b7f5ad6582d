#pragma once

#include "kernels/ops/gemm.h"

namespace lockstep::kernels {

// gemm() without a library, fp32 only, with this CPU's best instruction set. Its bits do not depend
// on the number of threads. gemm_own.cc uses it for all products, gemm_dnnl.cc for some.
void own_gemm(const Gemm& args);

}  // namespace lockstep::kernels
