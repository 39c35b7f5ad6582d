#include "kernels/ops/blas/cublaslt_library.h"

#include <dlfcn.h>

#include <string>

#include "kernels/device/cuda/cuda_call.h"
#include "kernels/device/shared_library.h"

namespace lockstep::kernels::blas {

namespace {

Status use_device(int index) {
  TRY_CUDA(index, cudaSetDevice(index));
  return {};
}

Result<CublasLtLibrary> find_all(const SharedLibrary& shared) {
  CublasLtLibrary library{.use_device = use_device};
  TRY(find_function(shared, "cublasLtCreate", library.create));
  TRY(find_function(shared, "cublasLtGetStatusString", library.status_string));
  TRY(find_function(shared, "cublasLtMatmulDescCreate", library.desc_create));
  TRY(find_function(shared, "cublasLtMatmulDescDestroy", library.desc_destroy));
  TRY(find_function(shared, "cublasLtMatmulDescSetAttribute", library.desc_set));
  TRY(find_function(shared, "cublasLtMatrixLayoutCreate", library.layout_create));
  TRY(find_function(shared, "cublasLtMatrixLayoutDestroy", library.layout_destroy));
  TRY(find_function(shared, "cublasLtMatmulPreferenceCreate", library.preference_create));
  TRY(find_function(shared, "cublasLtMatmulPreferenceDestroy", library.preference_destroy));
  TRY(find_function(shared, "cublasLtMatmulPreferenceSetAttribute", library.preference_set));
  TRY(find_function(shared, "cublasLtMatmulAlgoGetHeuristic", library.heuristic));
  TRY(find_function(shared, "cublasLtMatmul", library.matmul));
  return library;
}

// Loads the library with the soname of the toolkit we compiled against, whose header declares its
// types. Tries the loader's search path first, then the toolkit's folder.
Result<CublasLtLibrary> load() {
  const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  std::string reasons;
  for (const char* folder : {"", "/usr/local/cuda/lib64/"}) {
    void* handle = ::dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return find_all({.handle = handle, .name = "cublaslt"});
    const char* reason = ::dlerror();
    if (reasons.empty() && reason != nullptr) reasons = reason;
  }
  return unavailable("[cublaslt] expected " + name + " from the CUDA toolkit, got " + reasons);
}

}  // namespace

Result<const CublasLtLibrary*> load_cublaslt() {
  static const Result<CublasLtLibrary> library = load();
  TRY(library);
  return &library.value();
}

}  // namespace lockstep::kernels::blas
