#pragma once

#include "kernels/device/device.h"
#include "kernels/ops/conv2d.h"
#include "kernels/ops/dnn/graph.h"

// A pass of a convolution as we describe it to cuDNN: one operation. Tensors have the layout of
// kernels/ops/conv2d.h. cuDNN names dims in the order N, C, H, W whatever their strides, and learns
// the number of groups from the channels of images and filters. Pure data.
namespace lockstep::kernels::dnn {

enum class Conv2dPass : uint8_t {
  kForward,  // y from x and the filters
  kInputs,   // dx from dy and the filters
  kFilters,  // dweight from x and dy
};

// All three tensors have the dtype. With `adds` the result is added to what its tensor contains.
Graph conv2d_graph(const Conv2dShape& shape, DType dtype, Conv2dPass pass, bool adds);

}  // namespace lockstep::kernels::dnn
