#pragma once

#include "kernels/ops/conv2d.h"

namespace lockstep::kernels {

// A library's convolutions on the CPU. Each returns false, and has done nothing, for a convolution
// that the library does not do. Two implementations: conv2d_dnnl.cc and conv2d_own.cc, which
// leaves all of them to conv2d.cc.
bool library_conv2d_forward(const Conv2dForward& args);
bool library_conv2d_backward(const Conv2dBackward& args);
// Returns the part of the workspace that the library takes for a convolution it does.
size_t library_conv2d_workspace(const Conv2dShape& shape);

}  // namespace lockstep::kernels
