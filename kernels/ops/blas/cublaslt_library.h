#pragma once

#include <cublasLt.h>

#include "common/base/result.h"

namespace lockstep::kernels::blas {

// The cuBLASLt functions we use, with their types from cublasLt.h.
struct CublasLtLibrary {
  // Makes a device current for the calling thread; the other functions work in its context.
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

// Returns the library, loaded on first use, so that CPU processes do not load its 400 MB. It stays
// loaded. kUnavailable if it is missing. The emulated device has its own implementation
// (tests/support/emulated_cuda).
Result<const CublasLtLibrary*> load_cublaslt();

}  // namespace lockstep::kernels::blas
