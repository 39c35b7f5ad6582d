#include <algorithm>

#include "kernels/ops/conv2d_library.h"
#include "kernels/ops/conv2d_patches.h"

namespace lockstep::kernels {

PatchPlan patch_plan(const Conv2dShape& shape) {
  constexpr int64_t kPatchFloatsMax = 1 << 19;  // 2 MiB
  const int64_t image = shape.out_pixels() * shape.filter_count();
  PatchPlan plan;
  plan.images = std::clamp<int64_t>(kPatchFloatsMax / std::max<int64_t>(image, 1), 1,
                                    std::max<int64_t>(shape.batch, 1));
  plan.patch_floats = plan.images * image;
  if (shape.groups > 1) {
    plan.product_floats = plan.images * shape.out_pixels() * (shape.filters / shape.groups);
  }
  return plan;
}

// The kernels on CUDA need none.
size_t conv2d_workspace(const Conv2dShape& shape, DeviceType device) {
  if (device == DeviceType::kCuda) return 0;
  const PatchPlan plan = patch_plan(shape);
  const auto own = static_cast<size_t>(plan.patch_floats + plan.product_floats) * sizeof(float);
  return std::max(own, library_conv2d_workspace(shape));
}

}  // namespace lockstep::kernels
