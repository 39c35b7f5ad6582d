#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/device.h"

namespace lockstep::kernels {

// Sizes of a convolution, channels-last. Legend: N images of H x W pixels with C channels, filters
// of R x S pixels, K output channels, images of P x Q pixels as output, G groups. Group g reads
// channels [g C/G, (g+1) C/G) and writes channels [g K/G, (g+1) K/G).
struct Conv2dShape {
  int64_t batch = 0;          // N
  int64_t height = 0;         // H
  int64_t width = 0;          // W
  int64_t channels = 0;       // C, a multiple of groups
  int64_t filters = 0;        // K, a multiple of groups
  int64_t filter_height = 1;  // R, at most H + 2 padding
  int64_t filter_width = 1;   // S, at most W + 2 padding
  int64_t stride = 1;         // at least 1
  int64_t padding = 0;        // pixels of zeros on each side
  int64_t groups = 1;         // G

  constexpr int64_t out_height() const {
    return (height + 2 * padding - filter_height) / stride + 1;
  }
  constexpr int64_t out_width() const { return (width + 2 * padding - filter_width) / stride + 1; }
  constexpr int64_t out_pixels() const { return out_height() * out_width(); }
  constexpr int64_t in_count() const { return batch * height * width * channels; }
  constexpr int64_t out_count() const { return batch * out_pixels() * filters; }
  // Values of a filter: R*S*C/G.
  constexpr int64_t filter_count() const {
    return filter_height * filter_width * (channels / groups);
  }
  constexpr int64_t weight_count() const { return filters * filter_count(); }
  bool operator==(const Conv2dShape&) const = default;
};

// The kernels that compute a pass on CUDA: our own, or cuDNN's (kernels/ops/dnn/dnn.h). cuDNN's
// need the workspace that dnn::prepare_conv2d() returns, and tensors that are aligned to 16 bytes.
enum class Conv2dBy : uint8_t { kOwn, kCudnn };
struct Conv2dKernels {
  Conv2dBy forward = Conv2dBy::kOwn;
  Conv2dBy inputs = Conv2dBy::kOwn;   // dx
  Conv2dBy filters = Conv2dBy::kOwn;  // dweight

  bool operator==(const Conv2dKernels&) const = default;
};

// y[n,p,q,k] = bias[k] + sum over r, s, c of x[n,h,w,c] * weight[k,r,s,c], where
// h = p stride - padding + r, w = q stride - padding + s, and x = 0 outside the image. A fully
// connected layer is a convolution whose filter has the size of the image.
// On CUDA x, weight, y are all fp32 or all bf16; sums are fp32 and rounded once. By cuDNN a sum is
// rounded before the bias is added, and again after it. On the CPU all are fp32.
struct Conv2dForward {
  ConstView x = {};             // [N,H,W,C]
  ConstView weight = {};        // [K,R,S,C/G]
  const float* bias = nullptr;  // [K] or null
  View y = {};                  // [N,P,Q,K]
  Conv2dShape shape = {};
  Workspace workspace = {};  // of the kernels: conv2d_workspace(), PreparedConv2d
  Conv2dKernels by = {};
};

// dx = the gradient of x, or with adds_dx dx += it; dweight += and dbias += their gradients, each
// sum in an order that does not depend on timing. By cuDNN with bf16, the gradient of the filters
// is rounded to bf16 before it is added.
struct Conv2dBackward {
  ConstView dy = {};         // [N,P,Q,K]
  ConstView x = {};          // [N,H,W,C]; needed for dweight
  ConstView weight = {};     // [K,R,S,C/G]; needed for dx
  View dx = {};              // [N,H,W,C]; null: not computed
  float* dweight = nullptr;  // [K,R,S,C/G]; null: not computed
  float* dbias = nullptr;    // [K]; null: not computed
  Conv2dShape shape = {};
  bool adds_dx = false;
  Workspace workspace = {};  // of the kernels: conv2d_workspace(), PreparedConv2d
  Conv2dKernels by = {};
};

// Returns the bytes that our own kernels need.
size_t conv2d_workspace(const Conv2dShape& shape, DeviceType device);

}  // namespace lockstep::kernels
