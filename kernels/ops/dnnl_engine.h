#pragma once

#include <oneapi/dnnl/dnnl_types.h>

namespace lockstep::kernels {

// The CPU's engine of this process, below cpu_level_cap(). oneDNN requires that a primitive which
// uses the library's scratchpad runs on the thread that made it, so streams and primitives are per
// thread.
dnnl_engine_t dnnl_cpu_engine();

// Makes oneDNN use threads() threads.
void set_dnnl_threads();

}  // namespace lockstep::kernels
