#pragma once

#include "common/base/result.h"
#include "kernels/device/device.h"
#include "kernels/ops/blas/product.h"

// Matrix products with cuBLASLt. Two implementations: cublaslt.cc, and no_cublaslt.cc for a toolkit
// without it, where multiply() always returns false.
namespace lockstep::kernels::blas {

// Loads the library. kUnavailable, with what is missing, if this machine does not have it.
Status available();

// How to choose among the algorithms that the library's heuristic proposes for a product. The
// choice is made once per device and process.
// - kFirst: the heuristic's best, unmeasured. It is the same in every call, process and rank on the
//   same kind of device and library version, so two identical runs give the same bits.
// - kMeasured: the fastest of the heuristic's first eight by the device's clock, measured at the
//   first call of the product on separate outputs. The first one is kept if there is no memory for
//   the outputs, or if no other is 2 % faster. Each choice is logged with its time. All calls in a
//   process give the same bits, but another process (another rank, or the same job after a resume)
//   may choose differently and so round differently.
enum class AlgorithmChoice : uint8_t { kFirst, kMeasured };
// Applies to all later products; the default is kFirst. Call it from main, before the first
// product.
void set_algorithm_choice(AlgorithmChoice choice);
AlgorithmChoice algorithm_choice();

// Issues the product on the stream. Returns false, and issues nothing, if the library has no
// algorithm for it.
//
// Chooses an algorithm for each product (shape, dtypes, epilogue, alignments) and workspace size.
// Excludes algorithms whose summation order may differ from run to run (split-K into the output).
// workspace must be aligned to 256 bytes and used by this stream alone, so that streams do not
// affect each other's choice.
//
// The first call on a device creates the library's handle and context, which live as long as the
// process and take tens of milliseconds on the host. The first call of each product takes some
// microseconds, or the time of some dozens of products if measured. Thread-safe. Errors name call,
// file, line and device. Source: cuBLAS 13.0 documentation, "cublasLtMatmul", "Results
// Reproducibility".
Result<bool> multiply(Stream& stream, const Call& call, const Workspace& workspace);

// The size recommended for Hopper in the cuBLAS documentation (cublasSetWorkspace).
inline constexpr size_t kWorkspaceBytes = size_t{32} << 20;

}  // namespace lockstep::kernels::blas
