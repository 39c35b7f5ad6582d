#pragma once

#include <vector>

#include "tests/kernels/gpu_cases.h"

namespace lockstep::test {

// Of every op case in fp32 and in bf16: a GPU's results against double precision and its gradients
// against finite differences, with outputs that begin as NaN; and twice the same bits. Attention
// by cuDNN among them, or a line on stdout that says why not.
std::vector<GpuCase> gpu_op_cases();

}  // namespace lockstep::test
