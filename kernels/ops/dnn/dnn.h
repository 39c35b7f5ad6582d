#pragma once

#include <cstddef>

#include "common/base/result.h"
#include "kernels/device/device.h"
#include "kernels/ops/attention.h"

// Attention by cuDNN's fused kernels, as an alternative to attention.cu's. Twins: cudnn.cc, and
// no_cudnn.cc for a toolkit without cuDNN's headers, where all say kUnavailable.
namespace lockstep::dnn {

// Whether the library can be had on this machine; loads it. kUnavailable with what is missing.
Status available();

// Makes both passes of that shape, in bf16, ready on the device, and says how much workspace either
// needs. kUnavailable, with the reason, where this is not for cuDNN: a shape that has_graph()
// refuses, a device whose kernels are not the same bits each time (compute capability 10 and
// later), a version with known faults (below 9.16), or no kernel of the library. Compiles at the
// first call of a shape, on the host: seconds. Any number of threads may call, here and below.
//
// Of the kernels that the library's heuristic offers the first is taken: the same in every run on
// the same kind of device and version of the library. The graph of the backward pass is the one
// whose sums have one order; for it the library keeps the gradients of all scores in the workspace,
// 2 B*NH*T*T bytes and a little (1.5 GiB at B 64, NH 12, T 1024).
Result<size_t> prepare_attention(Device device, const AttentionShape& shape);

// As attention.h has them, for AttentionBy::kCudnn, after prepare_attention() of the shape on the
// stream's device. Tensors are bf16 and aligned to 16 bytes, the workspace to 256. They issue to
// the stream and return; errors name call, file, line and device.
Status attention_forward(Stream& stream, const AttentionForward& op);
Status attention_backward(Stream& stream, const AttentionBackward& op);

}  // namespace lockstep::dnn
