#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "kernels/ops/blas/blas.h"
#include "kernels/ops/blas/cublaslt_library.h"

namespace lockstep::kernels::blas {

// An owned descriptor of the library. Each kind has its own functions to create and free it.
template <class Pointer>
struct DescriptorRelease {
  using pointer = Pointer;
  cublasStatus_t (*release)(Pointer) = nullptr;
  void operator()(Pointer descriptor) const { release(descriptor); }
};
template <class Pointer>
using Descriptor = std::unique_ptr<void, DescriptorRelease<Pointer>>;

// A product in the library's form, with the algorithms proposed by the heuristic, best first; one
// of them once chosen. Each call sets the addresses of bias and aux.
struct Plan {
  Descriptor<cublasLtMatmulDesc_t> desc;
  Descriptor<cublasLtMatrixLayout_t> a;
  Descriptor<cublasLtMatrixLayout_t> b;
  Descriptor<cublasLtMatrixLayout_t> d;
  std::vector<cublasLtMatmulAlgo_t> algorithms;  // at least one; calls use the first
};

// Measures the device time in seconds from the start to the end of the work that `issue` issues on
// the stream. Blocks until the work is complete.
using Stopwatch = std::function<Result<double>(Device device, void* stream,
                                               const std::function<Status()>& issue)>;
Result<double> seconds_on_device(Device device, void* stream, const std::function<Status()>& issue);

struct CublasLtSettings {
  AlgorithmChoice choice = AlgorithmChoice::kFirst;
  Stopwatch stopwatch = seconds_on_device;
};

// The library's context on one device, with the plans of all products so far. Thread-safe. Never
// destroys the handle: at process exit CUDA may already be gone.
class CublasLt {
 public:
  // The library must outlive the object.
  static Result<std::unique_ptr<CublasLt>> create(const CublasLtLibrary& library, int index,
                                                  CublasLtSettings settings = {});

  // Same as blas::multiply(), on a stream of this device.
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
  // Returns nullopt if the library has no algorithm.
  Result<std::optional<Plan>> make_plan(const Call& call, size_t workspace_bytes);
  // Fills in the plan's algorithms; leaves them empty if the library has none.
  Status find_algorithms(const Call& call, size_t workspace_bytes, Plan& plan);
  // One call of the library on the stream.
  struct Issue {
    void* stream;
    const Plan& plan;
    const Call& call;
    const Workspace& workspace;
  };
  Status issue(const Issue& what, const cublasLtMatmulAlgo_t& algorithm);
  // Moves the plan's fastest algorithm to the front.
  Status choose_fastest(void* stream, const Call& call, const Workspace& workspace, Plan& plan);
  // Returns the time in seconds of each of the plan's algorithms, measured on separate outputs.
  Result<std::vector<double>> measure_apart(const Issue& what);
  // The same, on the outputs given in `what`; infinity for algorithms that fail.
  std::vector<double> measure(const Issue& what);

  const CublasLtLibrary& library_;
  int index_ = 0;
  CublasLtSettings settings_;
  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;
  std::map<Key, std::optional<Plan>> plans_;
};

}  // namespace lockstep::kernels::blas
