#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "kernels/ops/dnn/cudnn_library.h"

// A fake cuDNN backend on the CPU, behind the API's own functions. It computes an operation graph
// from the attributes of its descriptors, in double precision, and rounds each tensor to its type.
// Strides and the aliasing of reshaped tensors follow cudnn_graph.h and the documentation of 9.19.
// It computes any graph of matrix products, convolutions, pointwise operations, reductions and
// reshapes of four dims, so that a wrong stride, mask, scale or order shows in the values. It
// overwrites the workspace. It refuses, with the library's status:
// - attributes of a wrong type or count, or that a descriptor does not have
// - references to descriptors that are not finalized or no longer exist
// - shapes that do not fit
// - several tensors with the same unique id
// - virtual tensors that are read but never written
// - addresses that are missing or misaligned
namespace lockstep::test {

struct FakeCudnn {
  size_t version = 91900;
  int capability = 90;

  // Counts and arguments of calls since the last reset.
  int64_t calls = 0;
  int64_t heuristics = 0;
  int64_t executions = 0;
  int64_t last_engine = -1;  // of the last execution
  cudaStream_t last_stream = nullptr;
  // Number of existing descriptors; not reset.
  int64_t alive = 0;

  // Engines that the heuristic offers, and then those of the fallback list. The first
  // `nondeterministic` ones report that they are nondeterministic; the next `refused` ones are
  // refused when a plan is made.
  int64_t engines = 2;
  int64_t fallback_engines = 0;
  int64_t nondeterministic = 0;
  int64_t refused = 0;
  // The first engines report that they use tensor cores, or that they transform.
  int64_t on_tensor_cores = 1;
  int64_t transforming = 0;
  // Bytes of workspace of each plan; `wide_bytes` for the first `wide` engines, and for graphs with
  // the operation `wide_operation`.
  int64_t workspace_bytes = 512;
  int64_t wide_bytes = 0;
  int64_t wide = 0;
  std::optional<cudnnBackendDescriptorType_t> wide_operation = {};
  // The library offers no engine for graphs with this operation.
  std::optional<cudnnBackendDescriptorType_t> unsupported = {};
  // The index of the call that fails, once; and its name after it failed.
  int64_t fail_at = -1;
  std::string failed;

  // Restores the defaults.
  void reset();
};

FakeCudnn& fake_cudnn();

// Returns the fake's function table; where this is linked, load_cudnn() returns it too.
const kernels::dnn::CudnnLibrary& fake_cudnn_library();

}  // namespace lockstep::test
