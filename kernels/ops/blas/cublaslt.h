#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

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

// A product as the library takes it, with the algorithms that its heuristic gave, best first, until
// one is chosen. Addresses of bias and aux are set anew in each call.
struct Plan {
  Descriptor<cublasLtMatmulDesc_t> desc;
  Descriptor<cublasLtMatrixLayout_t> a;
  Descriptor<cublasLtMatrixLayout_t> b;
  Descriptor<cublasLtMatrixLayout_t> d;
  std::vector<cublasLtMatmulAlgo_t> algorithms;  // one or more; the first is the one to take
};

// Seconds of the device from when it begins with what `issue` issues on the stream until it is
// done, for which it waits.
using Stopwatch = std::function<Result<double>(Device device, void* stream,
                                               const std::function<Status()>& issue)>;
Result<double> seconds_on_device(Device device, void* stream, const std::function<Status()>& issue);

struct CublasLtSettings {
  AlgorithmChoice choice = AlgorithmChoice::kFirst;
  Stopwatch stopwatch = seconds_on_device;
};

// The library's context on one device, and the plans of the products that were asked for.
// Thread-safe. The handle is not destroyed: at the process's end CUDA may be gone before.
class CublasLt {
 public:
  // The library outlives it.
  static Result<std::unique_ptr<CublasLt>> create(const CublasLtLibrary& library, int index,
                                                  CublasLtSettings settings = {});

  // As blas::multiply(), on a stream of this device.
  Result<bool> multiply(void* stream, const Call& call, const Workspace& workspace);

 private:
  struct Key {
    Product product;
    size_t workspace_bytes = 0;
    auto operator<=>(const Key&) const = default;
  };

  CublasLt(const CublasLtLibrary& library, int index, CublasLtSettings settings)
      : library_(library), index_(index), settings_(std::move(settings)) {}

  Status set(const Plan& plan, cublasLtMatmulDescAttributes_t attribute, const void* value,
             size_t bytes);
  Status set_operands(const Plan& plan, const Call& call);
  Result<Plan> describe(const Call& call);
  // None if the library has no algorithm.
  Result<std::optional<Plan>> make_plan(const Call& call, size_t workspace_bytes);
  // The plan's algorithms, none if the library has none.
  Status find_algorithms(const Call& call, size_t workspace_bytes, Plan& plan);
  // A call of the library on the stream.
  struct Issue {
    void* stream;
    const Plan& plan;
    const Call& call;
    const Workspace& workspace;
  };
  Status issue(const Issue& what, const cublasLtMatmulAlgo_t& algorithm);
  // Puts the plan's fastest algorithm first.
  Status choose_fastest(void* stream, const Call& call, const Workspace& workspace, Plan& plan);
  // Seconds of each of the plan's algorithms, with outputs of their own.
  Result<std::vector<double>> measure_apart(const Issue& what);
  // Infinite for those that can't be run.
  std::vector<double> measure(const Issue& what);

  const CublasLtLibrary& library_;
  int index_ = 0;
  CublasLtSettings settings_;
  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;
  std::map<Key, std::optional<Plan>> plans_;
};

}  // namespace lockstep::blas
