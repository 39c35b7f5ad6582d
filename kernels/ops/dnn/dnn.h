#pragma once

#include <cstddef>
#include <string>

#include "common/base/result.h"
#include "kernels/device/device.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/conv2d.h"

// Attention and convolutions with cuDNN's kernels, as an alternative to attention.cu and conv2d.cu.
// Two implementations: cudnn.cc, and no_cudnn.cc for a toolkit without cuDNN's headers, where all
// functions return kUnavailable.
namespace lockstep::kernels::dnn {

// Loads the library. kUnavailable, with what is missing, if this machine does not have it.
Status available();

// Prepares both passes of that shape, in bf16, on the device, and returns the workspace size that
// covers both. kUnavailable, with the reason, if cuDNN cannot be used:
// - a shape that has_graph() refuses
// - a device whose kernels are not deterministic (compute capability 10 and later)
// - a version with known faults (below 9.16)
// - the library has no kernel for it, or its calls fail
// Compiles on the host at the first call for a shape, which takes seconds. This and the functions
// below are thread-safe.
//
// Takes the first kernel that the library's heuristic offers: the same one in every run on the same
// kind of device and library version. The backward graph is the deterministic one, with a fixed
// summation order. It keeps the gradients of all scores in the workspace: slightly more than 2
// B*NH*T*T bytes (1.5 GiB at B 64, NH 12, T 1024).
Result<size_t> prepare_attention(Device device, const AttentionShape& shape);

// The ops of attention.h for AttentionBy::kCudnn. The shape must have been prepared with
// prepare_attention() on the stream's device. Tensors are bf16 and aligned to 16 bytes, the
// workspace to 256. They issue to the stream and return; errors name call, file, line and device.
Status attention_forward(Stream& stream, const AttentionForward& op);
Status attention_backward(Stream& stream, const AttentionBackward& op);

// How a model calls a convolution.
struct Conv2dUse {
  Conv2dShape shape = {};
  DType dtype = DType::kF32;
  bool has_dx = true;
  bool adds_dx = false;

  bool operator==(const Conv2dUse&) const = default;
};
struct PreparedConv2dPass {
  Conv2dBy by = Conv2dBy::kOwn;
  size_t workspace_bytes = 0;  // of cuDNN's kernel
  std::string refusal = {};    // why cuDNN does not compute a pass that the model calls
};
struct PreparedConv2d {
  PreparedConv2dPass forward = {};
  PreparedConv2dPass inputs = {};
  PreparedConv2dPass filters = {};

  Conv2dKernels kernels() const { return {forward.by, inputs.by, filters.by}; }
  // Returns the bytes that cover all passes by cuDNN.
  size_t workspace_bytes() const;
  // Returns all refusals, separated by "; ".
  std::string refusals() const;
};

// Bytes of workspace that a kernel of cuDNN may take. A constant, so that the choice of kernels
// does not depend on the memory that happens to be free.
inline constexpr size_t kConv2dWorkspaceMax = size_t{1} << 30;

// Prepares the passes of a convolution on the device. cuDNN computes each pass that it has a kernel
// for: the first one in the list of its heuristic, then in that of its fallback kernels, that
// - needs a workspace of at most kConv2dWorkspaceMax
// - gives the same bits each time
// - sums in fp32, and multiplies what it is given: it neither converts inputs nor transforms them
//   (FFT, Winograd)
// - with fp32 uses no tensor cores, which would round to TF32.
// kUnavailable, with the reason, for a device or a version that prepare_attention() refuses too,
// and if a call of the library fails and no other kernel serves; a later call then tries again.
// The first call for a convolution takes up to seconds.
Result<PreparedConv2d> prepare_conv2d(Device device, const Conv2dUse& use);

// Passes of a convolution that was prepared on the stream's device, with the same dtype, and for
// conv2d_inputs() the same adds_dx. Tensors are aligned to 16 bytes, the workspace to 256.
// conv2d_forward() leaves out the bias. conv2d_filters() adds to dweight with fp32; with bf16,
// where cuDNN can not write fp32, it writes the gradient as bf16 to the start of the workspace.
Status conv2d_forward(Stream& stream, const Conv2dForward& op);
Status conv2d_inputs(Stream& stream, const Conv2dBackward& op);
Status conv2d_filters(Stream& stream, const Conv2dBackward& op);

}  // namespace lockstep::kernels::dnn
