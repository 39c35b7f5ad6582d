#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops/blas/cublaslt_library.h"

// cuBLASLt played by the CPU, of the API's own functions: products are computed from what was set
// on descriptors, layouts and preferences, in double precision, with the layouts by columns, the
// transposes, leading dimensions and epilogues that cublasLt.h and the documentation of CUDA 13.0
// describe. What they forbid is refused with the library's status: attributes of a wrong size,
// types that the table of cublasLtMatmul() does not have, an aux matrix whose leading dimension is
// not divisible by 8, less alignment than an algorithm was asked for, a workspace that is too small
// or not aligned to 256 bytes, an algorithm that is another product's. The workspace that an
// algorithm asked for is overwritten. What is refused is refused when it is called, scalars and
// descriptors are read then, and the product is computed when the stream (an emulated device's)
// comes to it; without a stream at once. One that nobody would wait for, of more than 1e9
// multiplications, fails.
namespace lockstep::test {

struct FakeCublasLt {
  // What was called, since the last reset.
  int64_t heuristics = 0;
  int64_t products = 0;
  uint32_t last_epilogue = 0;
  uint64_t last_reduction_schemes = 0;
  size_t last_workspace_bytes = 0;
  // Descriptors, layouts and preferences that exist; not reset.
  int64_t alive = 0;

  double seconds = 0.0;  // that the products took, by their algorithms' seconds_of

  // The algorithms of every product, best first, with what each takes; so many at most as are
  // asked for. The first ones that `unusable` counts are told with a state that is no success, and
  // those that take less than 0 fail when they are run.
  std::vector<double> seconds_of = {1.0};
  int unusable = 0;

  // What it refuses beside what is documented: no algorithm is found, which it says with `refusal`.
  cublasStatus_t refusal = CUBLAS_STATUS_NOT_SUPPORTED;
  bool refuse_epilogues = false;  // all but none
  bool refuse_gelu = false;       // all that GELU or its derivative is in
  bool refuse_all = false;
  bool refuse_odd_bf16 = false;  // a leading dimension that is no multiple of 8
  // The status of the next call of matmul(), once.
  cublasStatus_t next_failure = CUBLAS_STATUS_SUCCESS;

  // Counts and refusals as at the start.
  void reset();
};

FakeCublasLt& fake_cublaslt();

// Its table of functions, which load_cublaslt() gives too where this is linked.
const blas::CublasLtLibrary& fake_cublaslt_library();

}  // namespace lockstep::test
