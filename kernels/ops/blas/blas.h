#pragma once

#include "common/base/result.h"
#include "kernels/device/device.h"
#include "kernels/ops/blas/product.h"

// Matrix products by cuBLASLt. Twins: cublaslt.cc, and no_cublaslt.cc for a toolkit without it,
// where multiply() always says false.
namespace lockstep::blas {

// Whether the library can be had on this machine; loads it. kUnavailable with what is missing.
Status available();

// Which of the algorithms that the library's heuristic gives for a product is taken, once a device
// and process.
//   kFirst: its best, unmeasured: the same in every call, process and rank on the same kind of
//     device and version of the library, so that the same run twice gives the same bits.
//   kMeasured: the fastest of its first eight by the device's clock, where the product is first
//     asked for, with outputs of its own (the first is kept if there is no memory for them, or if
//     no other is 2 % faster); each choice is logged with its time. Within the process every call
//     gets the same bits, but another process, so another rank or the same job after a resume, may
//     choose otherwise and round otherwise.
enum class AlgorithmChoice : uint8_t { kFirst, kMeasured };
// For all products that come, kFirst until it is called; by main, before the first one.
void set_algorithm_choice(AlgorithmChoice choice);
AlgorithmChoice algorithm_choice();

// Issues the product on the stream; false if the library has no algorithm for it, and nothing was
// issued. The algorithm is chosen for the product (shape, dtypes, epilogue, alignments) and the
// workspace's size. Algorithms whose order of summation may differ from run to run (split-K into
// the output) are excluded. workspace: aligned to 256 bytes, of this stream alone, so that streams
// don't disturb each other's choice. The first call on a device makes the library's handle and
// context (on the host, tens of milliseconds), which live as long as the process; the first of each
// product some microseconds, or, measured, some dozens of products. Any number of threads may call.
// Errors name call, file, line and device. Source: cuBLAS 13.0 documentation, "cublasLtMatmul",
// "Results Reproducibility".
Result<bool> multiply(Stream& stream, const Call& call, const Workspace& workspace);

// So much is given to the library: what its documentation recommends for Hopper
// (cublasSetWorkspace).
inline constexpr size_t kWorkspaceBytes = size_t{32} << 20;

}  // namespace lockstep::blas
