#include "kernels/ops/layernorm.h"

#include "kernels/ops/cuda_ops.h"
#include "kernels/ops/norm.cuh"

namespace lockstep::kernels::cuda {

namespace {

constexpr NormNames kNames{.forward = "layernorm_forward",
                           .backward = "layernorm_backward",
                           .backward_rows = "layernorm_backward_rows",
                           .backward_columns = "layernorm_backward_columns"};

}  // namespace

void layernorm_forward(Stream& stream, const LayerNormForward& args) {
  launch_norm_forward<true>(stream, kNames, args);
}

void layernorm_backward(Stream& stream, const LayerNormBackward& args) {
  CHECK(args.workspace.bytes >= layernorm_backward_workspace(args.width, DeviceType::kCuda));
  launch_norm_backward<true>(stream, kNames, args, layernorm_backward_parts(DeviceType::kCuda));
}

}  // namespace lockstep::kernels::cuda
