#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "kernels/ops/blas/blas.h"
#include "kernels/ops/blas/cublaslt_library.h"

namespace lockstep::blas {

// A descriptor of the library, which has one function to make each kind and one to free it.
template <class Pointer>
struct DescriptorRelease {
  using pointer = Pointer;
  cublasStatus_t (*release)(Pointer) = nullptr;
  void operator()(Pointer descriptor) const { release(descriptor); }
};
template <class Pointer>
using Descriptor = std::unique_ptr<void, DescriptorRelease<Pointer>>;

// A product as the library takes it, with the algorithm that it chose. Addresses of bias and aux
// are set anew in each call.
struct Plan {
  Descriptor<cublasLtMatmulDesc_t> desc;
  Descriptor<cublasLtMatrixLayout_t> a;
  Descriptor<cublasLtMatrixLayout_t> b;
  Descriptor<cublasLtMatrixLayout_t> d;
  cublasLtMatmulAlgo_t algorithm{};
};

// The library's context on one device, and the plans of the products that were asked for.
// Thread-safe. The handle is not destroyed: at the process's end CUDA may be gone before.
class CublasLt {
 public:
  // The library outlives it.
  static Result<std::unique_ptr<CublasLt>> create(const CublasLtLibrary& library, int index);

  // As blas::multiply(), on a stream of this device.
  Result<bool> multiply(void* stream, const Call& call, const Workspace& workspace);

 private:
  struct Key {
    Product product;
    size_t workspace_bytes = 0;
    auto operator<=>(const Key&) const = default;
  };

  CublasLt(const CublasLtLibrary& library, int index) : library_(library), index_(index) {}

  Status set(const Plan& plan, cublasLtMatmulDescAttributes_t attribute, const void* value,
             size_t bytes);
  Status set_operands(const Plan& plan, const Call& call);
  Result<Plan> describe(const Call& call);
  // None if the library has no algorithm.
  Result<std::optional<Plan>> make_plan(const Call& call, size_t workspace_bytes);
  Status issue(void* stream, const Plan& plan, const Call& call, const Workspace& workspace);

  const CublasLtLibrary& library_;
  int index_ = 0;
  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;
  std::map<Key, std::optional<Plan>> plans_;
};

}  // namespace lockstep::blas
