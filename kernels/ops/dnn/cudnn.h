#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "kernels/ops/dnn/conv2d_graph.h"
#include "kernels/ops/dnn/cudnn_plan.h"
#include "kernels/ops/dnn/dnn.h"

namespace lockstep::kernels::dnn {

// The library's context on one device, with the plans of all prepared shapes. Thread-safe. Never
// destroys the handle: at process exit CUDA may already be gone.
class Cudnn {
 public:
  // The library must outlive the object. kUnavailable also for the devices and versions listed in
  // dnn.h.
  static Result<std::unique_ptr<Cudnn>> create(const CudnnLibrary& library, int index);

  // Same as the functions in dnn.h, on a stream of this device.
  Result<size_t> prepare(const AttentionShape& shape);
  Status forward(void* stream, const AttentionForward& op);
  Status backward(void* stream, const AttentionBackward& op);

  Result<PreparedConv2d> prepare(const Conv2dUse& use);
  Status forward(void* stream, const Conv2dForward& op);
  Status input_gradient(void* stream, const Conv2dBackward& op);
  Status filter_gradient(void* stream, const Conv2dBackward& op);

 private:
  struct Passes {
    Plan forward;
    Plan backward;
  };
  struct ConvolutionKey {
    Conv2dShape shape;
    DType dtype = DType::kF32;
    Conv2dPass pass = Conv2dPass::kForward;
    bool adds = false;
    bool operator==(const ConvolutionKey&) const = default;
  };
  struct ConvolutionPlan {
    ConvolutionKey key;
    PlanAnswer answer;
  };
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>;

  Cudnn(const CudnnLibrary& library, int index) : calls_(library, index) {}

  Result<Passes*> passes_of(const AttentionShape& shape);
  const PlanAnswer* find_convolution(const ConvolutionKey& key) const;
  Result<const PlanAnswer*> plan_convolution(const ConvolutionKey& key);
  Status run(void* stream, const ConvolutionKey& key, const Bindings& bindings,
             const Workspace& workspace);

  CudnnCalls calls_;
  cudnnHandle_t handle_ = nullptr;
  std::mutex mutex_;
  std::map<Key, std::unique_ptr<Passes>> passes_;
  std::vector<std::unique_ptr<ConvolutionPlan>> convolutions_;  // a model has tens
};

}  // namespace lockstep::kernels::dnn
