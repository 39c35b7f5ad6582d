#pragma once

#include <array>
#include <limits>
#include <optional>
#include <string>

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

// An operation graph, and which of the library's engines may compute it.
struct PlanRequest {
  Graph graph;
  Engines engines = Engines::kDeterministic;
  // Whether to ask for the library's fallback engines too, after those of its heuristic.
  bool takes_fallback = false;
  size_t workspace_bytes_max = std::numeric_limits<size_t>::max();
  const char* what = "";
};

// A plan, or why the library has none: "[cudnn] `what`: `reason` for this shape".
struct PlanAnswer {
  std::optional<Plan> plan;
  std::string refusal;
};

// Takes the first allowed engine that the library offers: the same one in every run on the same
// kind of device and library version, as long as no call fails. If a call fails for an engine,
// tries the next one, and returns the error only if no other engine serves.
Result<PlanAnswer> make_plan(const CudnnCalls& calls, cudnnHandle_t handle, PlanRequest request);

// Addresses of a graph's tensors by port; null for ports the graph does not have.
using Bindings = std::array<void*, kPorts>;

inline void bind(Bindings& bindings, Port port, const void* data) {
  bindings[static_cast<size_t>(port)] = const_cast<void*>(data);
}

// Alignment of workspaces.
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
