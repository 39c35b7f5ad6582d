#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops/blas/cublaslt_library.h"

// A fake cuBLASLt on the CPU, behind the API's own functions. It computes products in double
// precision from the attributes of descriptors, layouts and preferences, with the column-major
// layouts, transposes, leading dimensions and epilogues described in cublasLt.h and the
// documentation of CUDA 13.0. It refuses what these forbid, with the library's status:
// - attributes of a wrong size
// - types that are not in the table of cublasLtMatmul()
// - an aux matrix whose leading dimension is not divisible by 8
// - less alignment than the algorithm was requested for
// - a workspace that is too small or not aligned to 256 bytes
// - an algorithm of another product
//
// It checks, and reads scalars and descriptors, during the call. It computes the product in stream
// order on an emulated device's stream, or immediately without a stream. It overwrites the
// workspace that an algorithm requested. A product of more than 1e9 multiplications fails, because
// it would take too long.
namespace lockstep::test {

struct FakeCublasLt {
  // Counts and arguments of calls since the last reset.
  int64_t heuristics = 0;
  int64_t products = 0;
  uint32_t last_epilogue = 0;
  uint64_t last_reduction_schemes = 0;
  size_t last_workspace_bytes = 0;
  // Number of existing descriptors, layouts and preferences; not reset.
  int64_t alive = 0;

  double seconds = 0.0;  // total time of the products, from their algorithms' seconds_of

  // The seconds of each algorithm, best first; every product has these algorithms, of which the
  // caller gets at most as many as requested. The first `unusable` ones are returned with an error
  // state. Those with negative seconds fail when they run.
  std::vector<double> seconds_of = {1.0};
  int unusable = 0;

  // Additional refusals: the heuristic finds no algorithm and returns `refusal`.
  cublasStatus_t refusal = CUBLAS_STATUS_NOT_SUPPORTED;
  bool refuse_epilogues = false;  // all but none
  bool refuse_gelu = false;       // all with GELU or its derivative
  bool refuse_all = false;
  bool refuse_odd_bf16 = false;  // a leading dimension that is not a multiple of 8
  // Status of the next call of matmul(), once.
  cublasStatus_t next_failure = CUBLAS_STATUS_SUCCESS;

  // Resets counts and refusals.
  void reset();
};

FakeCublasLt& fake_cublaslt();

// Returns the fake's function table; where this is linked, load_cublaslt() returns it too.
const kernels::blas::CublasLtLibrary& fake_cublaslt_library();

}  // namespace lockstep::test
