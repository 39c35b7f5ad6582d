#include "kernels/ops/rmsnorm.h"

#include "kernels/ops/cuda_ops.h"
#include "kernels/ops/norm.cuh"

namespace lockstep::cuda {

namespace {

constexpr NormNames kNames{.forward = "rmsnorm_forward",
                           .backward_rows = "rmsnorm_backward_rows",
                           .backward_columns = "rmsnorm_backward_columns"};

}  // namespace

void rmsnorm_forward(Stream& stream, const RmsNormForward& args) {
  CHECK(bool(args.residual) == bool(args.residual_out));
  const PackedRows rows{.dtype = args.y.dtype,
                        .width = args.width,
                        .begins = {args.x.data, args.residual.data, args.residual_out.data,
                                   args.weight.data, args.y.data}};
  dispatch(rows, [&]<class T, int N>(Pack<T, N>) {
    launch(stream, warp_rows_shape(kNames.forward, args.rows), norm_forward<T, N, false>,
           NormForwardRows<T>{.x = elements_of<T>(args.x),
                              .residual = elements_of<T>(args.residual),
                              .residual_out = elements_of<T>(args.residual_out),
                              .weight = args.weight.f32(),
                              .bias = nullptr,
                              .y = elements_of<T>(args.y),
                              .mean = nullptr,
                              .reciprocal_std = args.rrms,
                              .rows = args.rows,
                              .width = args.width,
                              .epsilon = args.epsilon});
  });
}

void rmsnorm_backward(Stream& stream, const RmsNormBackward& args) {
  CHECK(args.workspace.bytes >= rmsnorm_backward_workspace(args.width, DeviceType::kCuda));
  const PackedRows rows{
      .dtype = args.dx.dtype,
      .width = args.width,
      .begins = {args.dy.data, args.h.data, args.weight.data, args.dresidual.data, args.dx.data}};
  dispatch(rows, [&]<class T, int N>(Pack<T, N>) {
    launch_norm_backward<false, T, N>(stream, kNames,
                                      {.dy = elements_of<T>(args.dy),
                                       .h = elements_of<T>(args.h),
                                       .weight = args.weight.f32(),
                                       .mean = nullptr,
                                       .reciprocal_std = args.rrms,
                                       .dresidual = elements_of<T>(args.dresidual),
                                       .dx = elements_of<T>(args.dx),
                                       .parts = static_cast<float*>(args.workspace.data),
                                       .rows = args.rows,
                                       .width = args.width},
                                      rmsnorm_backward_parts(DeviceType::kCuda), args.dweight.f32(),
                                      nullptr);
  });
}

}  // namespace lockstep::cuda
