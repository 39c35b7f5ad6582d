#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/ops/dnn/cudnn_library.h"

// cuDNN's backend played by the CPU, of the API's own functions: an operation graph is computed
// from what was set on its descriptors, in double precision, each tensor rounded to its type, by
// the strides and the aliasing of reshaped tensors that cudnn_graph.h and the documentation of 9.19
// describe. Any graph of matrix products, pointwise operations, reductions and reshapes of four
// dims is computed, so that a wrong stride, mask, scale or order shows in the values. Refused with
// the library's status are: attributes of another type or count, and those that a descriptor has
// not; references to what is not finalized or no more there; shapes that do not fit; tensors of one
// unique id, virtual ones that nothing wrote; addresses that are missing or not aligned. The
// workspace is overwritten.
namespace lockstep::test {

struct FakeCudnn {
  size_t version = 91900;
  int capability = 90;

  // What was called, since the last reset.
  int64_t calls = 0;
  int64_t heuristics = 0;
  int64_t executions = 0;
  cudaStream_t last_stream = nullptr;
  // Descriptors that exist; not reset.
  int64_t alive = 0;

  // Engines that the heuristic offers, of which the first say that they are nondeterministic and
  // the next are refused when a plan is made.
  int64_t engines = 2;
  int64_t nondeterministic = 0;
  int64_t refused = 0;
  // That call, counted from 0, fails, once; and its name.
  int64_t fail_at = -1;
  std::string failed;

  // As at the start.
  void reset();
};

FakeCudnn& fake_cudnn();

// Its table of functions, which load_cudnn() gives too where this is linked.
const dnn::CudnnLibrary& fake_cudnn_library();

}  // namespace lockstep::test
