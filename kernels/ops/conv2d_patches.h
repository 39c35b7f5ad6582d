#pragma once

#include <cstdint>

#include "kernels/ops/conv2d.h"

namespace lockstep::kernels {

// How the CPU's own convolution becomes matrix products: the pixels that a filter covers, its
// patch, become a row of R*S*C/G values. It takes some images at a time, so that their patches stay
// in the cache.
struct PatchPlan {
  int64_t images = 1;          // at a time
  int64_t patch_floats = 0;    // of these images' patches, of one group
  int64_t product_floats = 0;  // of the product with a group's filters; 0 with one group
};

PatchPlan patch_plan(const Conv2dShape& shape);

}  // namespace lockstep::kernels
