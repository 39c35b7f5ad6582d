#pragma once

#include <cstddef>

#include "common/base/result.h"
#include "kernels/device/device.h"
#include "kernels/ops/attention.h"

// Attention with cuDNN's fused kernels, as an alternative to attention.cu. Two implementations:
// cudnn.cc, and no_cudnn.cc for a toolkit without cuDNN's headers, where all functions return
// kUnavailable.
namespace lockstep::kernels::dnn {

// Loads the library. kUnavailable, with what is missing, if this machine does not have it.
Status available();

// Prepares both passes of that shape, in bf16, on the device, and returns the workspace size that
// covers both. kUnavailable, with the reason, if cuDNN cannot be used:
// - a shape that has_graph() refuses
// - a device whose kernels are not deterministic (compute capability 10 and later)
// - a version with known faults (below 9.16)
// - the library has no kernel for it
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

}  // namespace lockstep::kernels::dnn
