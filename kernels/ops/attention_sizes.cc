#include "kernels/device/parallel.h"
#include "kernels/ops/attention.h"

namespace lockstep::kernels {

int64_t attention_stride(const AttentionShape& shape) {
  constexpr int64_t kLine = 16;  // a cache line in floats; at least one vector of any instruction
                                 // set
  return (shape.sequence + kLine - 1) / kLine * kLine + kLine;
}

int64_t attention_scratch_floats(const AttentionShape& shape) {
  return 2 * (shape.head_dim + kAttentionBlockRows) * attention_stride(shape);
}

// On CUDA it holds each row's sum of dout * out.
size_t attention_workspace(const AttentionShape& shape, DeviceType type) {
  if (type == DeviceType::kCuda) {
    return static_cast<size_t>(shape.batch * shape.heads * shape.sequence) * sizeof(float);
  }
  return static_cast<size_t>(threads()) * static_cast<size_t>(attention_scratch_floats(shape)) *
         sizeof(float);
}

}  // namespace lockstep::kernels
