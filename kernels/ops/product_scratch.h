#pragma once

#include <cstdint>

namespace lockstep::kernels {

// Returns memory for at least `floats` numbers, aligned to a cache line, which belongs to the
// calling thread until it ends. Products on the CPU pack their operands there; the first product
// allocates it. A later call with a larger size moves it.
float* product_scratch(int64_t floats);

}  // namespace lockstep::kernels
