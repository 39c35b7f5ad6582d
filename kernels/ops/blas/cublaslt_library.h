#pragma once

#include <cublasLt.h>

#include "common/base/result.h"

namespace lockstep::blas {

// The functions of cuBLASLt that are used, with the types that cublasLt.h gives them.
struct CublasLtLibrary {
  // Makes a device the calling thread's current one, in whose context the others work.
  Status (*use_device)(int index) = nullptr;

  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtGetStatusString) status_string = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
};

// The library, loaded when it is first asked for (its 400 MB are none of a CPU's); it stays loaded.
// kUnavailable where there is none. Twin: the emulated device's (tests/support/emulated_cuda).
Result<const CublasLtLibrary*> load_cublaslt();

}  // namespace lockstep::blas
