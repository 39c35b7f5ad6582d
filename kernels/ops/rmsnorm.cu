#include "kernels/ops/rmsnorm.h"

#include "kernels/ops/cuda_ops.h"
#include "kernels/ops/norm.cuh"

namespace lockstep::kernels::cuda {

namespace {

constexpr NormNames kNames{.forward = "rmsnorm_forward",
                           .backward = "rmsnorm_backward",
                           .backward_rows = "rmsnorm_backward_rows",
                           .backward_columns = "rmsnorm_backward_columns"};

}  // namespace

void rmsnorm_forward(Stream& stream, const RmsNormForward& args) {
  launch_norm_forward<false>(stream, kNames,
                             {.x = args.x,
                              .residual = args.residual,
                              .residual_out = args.residual_out,
                              .weight = args.weight,
                              .y = args.y,
                              .rstd = args.rrms,
                              .rows = args.rows,
                              .width = args.width,
                              .epsilon = args.epsilon});
}

void rmsnorm_backward(Stream& stream, const RmsNormBackward& args) {
  CHECK(args.workspace.bytes >= rmsnorm_backward_workspace(args.width, DeviceType::kCuda));
  launch_norm_backward<false>(stream, kNames,
                              {.dy = args.dy,
                               .h = args.h,
                               .weight = args.weight,
                               .rstd = args.rrms,
                               .dresidual = args.dresidual,
                               .dx = args.dx,
                               .dweight = args.dweight,
                               .rows = args.rows,
                               .width = args.width,
                               .workspace = args.workspace},
                              rmsnorm_backward_parts(DeviceType::kCuda));
}

}  // namespace lockstep::kernels::cuda
