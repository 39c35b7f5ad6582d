#pragma once

#include <array>

#include "kernels/ops/dnn/cudnn_descriptors.h"
#include "kernels/ops/dnn/graph.h"

namespace lockstep::kernels::dnn {

// A graph with the engine that the library chose for it.
struct Plan {
  Graph graph;
  DescribedGraph described;
  Descriptor config;  // of the engine
  Descriptor plan;
  size_t workspace_bytes = 0;
};

// The engines that a plan may take, by the numerical notes that the library has for them. None of
// them depends on timing.
enum class Engines : uint8_t {
  kDeterministic,
  kExact,      // nor converts inputs, sums in less than fp32, or transforms (FFT, Winograd)
  kExactFp32,  // nor uses tensor cores, which would round fp32 to TF32
};

// Takes the first such engine that the library's heuristic offers: the same one in every run on the
// same kind of device and library version. kUnavailable, with the reason and beginning with
// "[cudnn] `what`", if there is none.
struct PlanRequest {
  Graph graph;
  Engines engines = Engines::kDeterministic;
  const char* what = "";
};
Result<Plan> make_plan(const CudnnCalls& calls, cudnnHandle_t handle, PlanRequest request);

// Addresses of a graph's tensors by port; null for ports the graph does not have.
using Bindings = std::array<void*, kPorts>;

inline void bind(Bindings& bindings, Port port, const void* data) {
  bindings[static_cast<size_t>(port)] = const_cast<void*>(data);
}

// Alignment of tensors in device memory, and of workspaces.
inline constexpr uintptr_t kTensorAlignment = 16;
inline constexpr uintptr_t kWorkspaceAlignment = 256;
constexpr size_t workspace_aligned(size_t bytes) {
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}
inline bool is_aligned(const void* data, uintptr_t alignment) {
  return reinterpret_cast<uintptr_t>(data) % alignment == 0;
}

// Issues the plan to a stream, with a workspace of its size. The caller serialises the calls of a
// handle.
Status run_plan(const CudnnCalls& calls, cudnnHandle_t handle, void* stream, const Plan& plan,
                const Bindings& bindings, void* workspace);

}  // namespace lockstep::kernels::dnn
