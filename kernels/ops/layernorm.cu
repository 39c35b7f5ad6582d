#include "kernels/ops/layernorm.h"

#include "kernels/ops/cuda_ops.h"
#include "kernels/ops/norm.cuh"

namespace lockstep::cuda {

namespace {

constexpr NormNames kNames{.forward = "layernorm_forward",
                           .backward_rows = "layernorm_backward_rows",
                           .backward_columns = "layernorm_backward_columns"};

}  // namespace

void layernorm_forward(Stream& stream, const LayerNormForward& args) {
  CHECK(bool(args.residual) == bool(args.residual_out));
  const PackedRows rows{.dtype = args.y.dtype,
                        .width = args.width,
                        .begins = {args.x.data, args.residual.data, args.residual_out.data,
                                   args.weight.data, args.bias.data, args.y.data}};
  dispatch(rows, [&]<class T, int N>(Pack<T, N>) {
    launch(stream, warp_rows_shape(kNames.forward, args.rows), norm_forward<T, N, true>,
           NormForwardRows<T>{.x = elements_of<T>(args.x),
                              .residual = elements_of<T>(args.residual),
                              .residual_out = elements_of<T>(args.residual_out),
                              .weight = args.weight.f32(),
                              .bias = args.bias.f32(),
                              .y = elements_of<T>(args.y),
                              .mean = args.mean,
                              .reciprocal_std = args.rstd,
                              .rows = args.rows,
                              .width = args.width,
                              .epsilon = args.epsilon});
  });
}

void layernorm_backward(Stream& stream, const LayerNormBackward& args) {
  CHECK(args.workspace.bytes >= layernorm_backward_workspace(args.width, DeviceType::kCuda));
  const PackedRows rows{
      .dtype = args.dx.dtype,
      .width = args.width,
      .begins = {args.dy.data, args.h.data, args.weight.data, args.dresidual.data, args.dx.data}};
  dispatch(rows, [&]<class T, int N>(Pack<T, N>) {
    launch_norm_backward<true, T, N>(stream, kNames,
                                     {.dy = elements_of<T>(args.dy),
                                      .h = elements_of<T>(args.h),
                                      .weight = args.weight.f32(),
                                      .mean = args.mean,
                                      .reciprocal_std = args.rstd,
                                      .dresidual = elements_of<T>(args.dresidual),
                                      .dx = elements_of<T>(args.dx),
                                      .parts = static_cast<float*>(args.workspace.data),
                                      .rows = args.rows,
                                      .width = args.width},
                                     layernorm_backward_parts(DeviceType::kCuda),
                                     args.dweight.f32(), args.dbias.f32());
  });
}

}  // namespace lockstep::cuda
