#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "kernels/ops/dnn/cudnn_descriptors.h"
#include "kernels/ops/dnn/dnn.h"

namespace lockstep::kernels::dnn {

// A graph with the engine that the library chose for it.
struct SdpaPlan {
  Graph graph;
  DescribedGraph described;
  Descriptor config;  // of the engine
  Descriptor plan;
  size_t workspace_bytes = 0;
};

// Addresses of a graph's tensors by port; null for ports the graph does not have.
using Bindings = std::array<void*, kPorts>;

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

 private:
  struct Passes {
    SdpaPlan forward;
    SdpaPlan backward;
  };
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>;

  Cudnn(const CudnnLibrary& library, int index) : calls_(library, index) {}

  Result<SdpaPlan> make_plan(Graph graph) const;
  Result<bool> plan_with(const Descriptor& config, SdpaPlan& made) const;
  // Returns the heuristic's configurations, best first.
  Result<std::vector<Descriptor>> engine_configs(const DescribedGraph& graph) const;
  Result<bool> is_deterministic(const Descriptor& config) const;
  Result<Passes*> passes_of(const AttentionShape& shape);
  Status run(void* stream, const SdpaPlan& plan, const Bindings& bindings, void* workspace) const;

  CudnnCalls calls_;
  cudnnHandle_t handle_ = nullptr;
  std::mutex mutex_;
  std::map<Key, std::unique_ptr<Passes>> passes_;
};

}  // namespace lockstep::kernels::dnn
