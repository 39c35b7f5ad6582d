#pragma once

#include "common/base/result.h"
#include "kernels/device/device.h"
#include "kernels/ops/blas/product.h"

// Matrix products by cuBLASLt. Twins: cublaslt.cc, and no_cublaslt.cc for a toolkit without it,
// where multiply() always says false.
namespace lockstep::blas {

// Whether the library can be had on this machine; loads it. kUnavailable with what is missing.
Status available();

// Issues the product on the stream; false if the library has no algorithm for it, and nothing was
// issued. The algorithm is the heuristic's best for the product (shape, dtypes, epilogue,
// alignments) and the workspace's size, asked for once a device and process: the same in every call
// and every run on the same kind of device and version of the library. Algorithms whose order of
// summation may differ from run to run (split-K into the output) are excluded. workspace: aligned
// to 256 bytes, of this stream alone, so that streams don't disturb each other's choice. The first
// call on a device makes the library's handle and context (on the host, tens of milliseconds),
// which live as long as the process; the first of each product some microseconds. Any number of
// threads may call. Errors name call, file, line and device. Source: cuBLAS 13.0 documentation,
// "cublasLtMatmul", "Results Reproducibility".
Result<bool> multiply(Stream& stream, const Call& call, const Workspace& workspace);

// So much is given to the library: what its documentation recommends for Hopper
// (cublasSetWorkspace).
inline constexpr size_t kWorkspaceBytes = size_t{32} << 20;

}  // namespace lockstep::blas
