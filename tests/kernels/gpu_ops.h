#pragma once

#include <vector>

#include "tests/kernels/gpu_cases.h"

namespace lockstep::test {

// Returns cases for every op case, in fp32 and in bf16. They check a GPU's results against double
// precision, its gradients against finite differences, and that two runs give the same bits.
// Outputs start as NaN. Includes attention and convolutions by cuDNN; if cuDNN is missing, prints a
// line to stdout that says why.
std::vector<GpuCase> gpu_op_cases();

}  // namespace lockstep::test
