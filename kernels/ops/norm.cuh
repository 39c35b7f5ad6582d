#pragma once

#include "kernels/device/cuda/launch.cuh"
#include "kernels/device/cuda/reduce.cuh"
#include "kernels/ops/column_sums.cuh"
#include "kernels/ops/dispatch.cuh"
#include "kernels/ops/geometry.h"
#include "kernels/ops/layernorm.h"

// Code shared by layer norm and RMS norm: y = (h - mean) * scale * weight + bias. RMS norm has mean
// 0 and no bias (kCentred false). R rows of width C; T is the activations' type.
namespace lockstep::kernels::cuda {

template <class T>
struct NormForwardRows {
  const T* x;             // [R,C]
  const T* residual;      // [R,C] or null
  T* residual_out;        // [R,C] or null
  const float* weight;    // [C]
  const float* bias;      // [C]; null unless centred
  T* y;                   // [R,C]
  float* mean;            // [R] or null
  float* reciprocal_std;  // [R] or null; 1/rms for RMS norm
  int64_t rows;
  int64_t width;
  float epsilon;
};

// One warp per row. Every lane has the same columns in each pass, so rows may be changed in-place.
// Sums use h as stored.
template <class T, int N, bool kCentred>
__global__ void __launch_bounds__(kWarpRowThreads) norm_forward(NormForwardRows<T> args) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * warp_count() + warp_index();
  if (row >= args.rows) return;
  const int64_t begin = row * args.width;
  const T* h = args.residual ? args.residual_out + begin : args.x + begin;
  const int64_t first = int64_t{lane_index()} * N, step = int64_t{kWarpThreads} * N;
  const float width = static_cast<float>(args.width);
  float sum = 0.0f;  // of h or of its squares
  for (int64_t i = first; i < args.width; i += step) {
    float values[N];
    load_values(values, args.x + begin + i);
    if (args.residual) {
      float others[N];
      load_values(others, args.residual + begin + i);
      for (int j = 0; j < N; ++j) values[j] = as_stored(values[j] + others[j], h);
      store_values(args.residual_out + begin + i, values);
    }
    for (const float v : values) sum += kCentred ? v : v * v;
  }
  sum = reduce_warp(sum, Plus{});
  float mean = 0.0f;
  float variance = sum / width;
  if constexpr (kCentred) {
    // Two passes over the row are more precise than E[h^2] - mean^2.
    mean = sum / width;
    float squares = 0.0f;
    for (int64_t i = first; i < args.width; i += step) {
      float values[N];
      load_values(values, h + i);
      for (const float v : values) squares += (v - mean) * (v - mean);
    }
    variance = reduce_warp(squares, Plus{}) / width;
  }
  const float scale = 1.0f / sqrtf(variance + args.epsilon);
  for (int64_t i = first; i < args.width; i += step) {
    float values[N], weights[N];
    load_values(values, h + i);
    load_values(weights, args.weight + i);
    for (int j = 0; j < N; ++j) values[j] = (values[j] - mean) * scale * weights[j];
    if constexpr (kCentred) {
      float biases[N];
      load_values(biases, args.bias + i);
      for (int j = 0; j < N; ++j) values[j] += biases[j];
    }
    store_values(args.y + begin + i, values);
  }
  if (lane_index() > 0) return;
  if (args.mean) args.mean[row] = mean;
  if (args.reciprocal_std) args.reciprocal_std[row] = scale;
}

template <class T>
struct NormBackwardRows {
  const T* dy;                  // [R,C]
  const T* h;                   // [R,C]
  const float* weight;          // [C]
  const float* mean;            // [R]; null unless centred
  const float* reciprocal_std;  // [R]
  const T* dresidual;           // [R,C] or null
  T* dx;                        // [R,C]
  float* parts;                 // [parts][dweight, and if centred dbias][C]
  int64_t rows;
  int64_t width;
};

// Computes dx, one warp per row, in-place as above.
template <class T, int N, bool kCentred>
__global__ void __launch_bounds__(kWarpRowThreads) norm_backward_rows(NormBackwardRows<T> args) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * warp_count() + warp_index();
  if (row >= args.rows) return;
  const int64_t begin = row * args.width;
  const int64_t first = int64_t{lane_index()} * N, step = int64_t{kWarpThreads} * N;
  const float mean = kCentred ? args.mean[row] : 0.0f;
  const float scale = args.reciprocal_std[row];
  float sum = 0.0f, sum_hat = 0.0f;  // of g = dy * weight and of g * hat
  for (int64_t i = first; i < args.width; i += step) {
    float dy[N], h[N], weights[N];
    load_values(dy, args.dy + begin + i);
    load_values(h, args.h + begin + i);
    load_values(weights, args.weight + i);
    for (int j = 0; j < N; ++j) {
      const float g = dy[j] * weights[j];
      sum += g;
      sum_hat += g * (h[j] - mean) * scale;
    }
  }
  const float width = static_cast<float>(args.width);
  const float mean_g = kCentred ? reduce_warp(sum, Plus{}) / width : 0.0f;
  const float mean_g_hat = reduce_warp(sum_hat, Plus{}) / width;
  for (int64_t i = first; i < args.width; i += step) {
    float dy[N], h[N], weights[N];
    load_values(dy, args.dy + begin + i);
    load_values(h, args.h + begin + i);
    load_values(weights, args.weight + i);
    for (int j = 0; j < N; ++j) {
      const float hat = (h[j] - mean) * scale;
      dy[j] = (dy[j] * weights[j] - mean_g - hat * mean_g_hat) * scale;
    }
    if (args.dresidual) {
      float others[N];
      load_values(others, args.dresidual + begin + i);
      for (int j = 0; j < N; ++j) dy[j] += others[j];
    }
    store_values(args.dx + begin + i, dy);
  }
}

// Sums a strip of columns over a part of the rows. Warps take the rows in turn; then their sums are
// added in index order.
template <class T, int N, bool kCentred>
__global__ void __launch_bounds__(kColumnThreads) norm_backward_columns(NormBackwardRows<T> args) {
  constexpr int kStrip = kWarpThreads * N, kSums = kCentred ? 2 : 1;
  const int64_t column = int64_t{blockIdx.x} * kStrip + lane_index() * N;
  const int64_t row_begin = args.rows * blockIdx.y / gridDim.y;
  const int64_t row_end = args.rows * (int64_t{blockIdx.y} + 1) / gridDim.y;
  float sums[kSums][N] = {};  // for dweight and, if centred, dbias
  if (column < args.width) {
    for (int64_t row = row_begin + warp_index(); row < row_end; row += warp_count()) {
      float dy[N], h[N];
      load_values(dy, args.dy + row * args.width + column);
      load_values(h, args.h + row * args.width + column);
      const float mean = kCentred ? args.mean[row] : 0.0f, scale = args.reciprocal_std[row];
      for (int j = 0; j < N; ++j) {
        sums[0][j] += dy[j] * (h[j] - mean) * scale;
        if constexpr (kCentred) sums[1][j] += dy[j];
      }
    }
  }
  join_warps(sums, shared_memory<float>(), [&](int sum, int i, float total) {
    const int64_t c = int64_t{blockIdx.x} * kStrip + i;
    if (c >= args.width) return;
    args.parts[(int64_t{blockIdx.y} * kSums + sum) * args.width + c] = total;
  });
}

struct NormNames {
  const char* forward;
  const char* backward_rows;
  const char* backward_columns;
};

// Both norm ops, with the arguments of a layer norm. For RMS norm, bias, mean and dbias are null
// and rstd is 1/rms.
template <bool kCentred>
void launch_norm_forward(Stream& stream, const NormNames& names, const LayerNormForward& args) {
  CHECK(bool(args.residual) == bool(args.residual_out));
  const PackedRows rows{.dtype = args.y.dtype,
                        .width = args.width,
                        .begins = {args.x.data, args.residual.data, args.residual_out.data,
                                   args.weight.data, args.bias.data, args.y.data}};
  dispatch(rows, [&]<class T, int N>(Pack<T, N>) {
    launch(stream, warp_rows_shape(names.forward, args.rows), norm_forward<T, N, kCentred>,
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

// Computes the sums over rows, in at most `parts_max` parts, before dx, because dx may overwrite
// dy.
template <bool kCentred>
void launch_norm_backward(Stream& stream, const NormNames& names, const LayerNormBackward& args,
                          int parts_max) {
  constexpr int kSums = kCentred ? 2 : 1;
  if (args.rows == 0) return;
  const int64_t parts = row_parts(args.rows, parts_max);
  auto* sums = static_cast<float*>(args.workspace.data);
  const PackedRows rows{
      .dtype = args.dx.dtype,
      .width = args.width,
      .begins = {args.dy.data, args.h.data, args.weight.data, args.dresidual.data, args.dx.data}};
  dispatch(rows, [&]<class T, int N>(Pack<T, N>) {
    const NormBackwardRows<T> typed{.dy = elements_of<T>(args.dy),
                                    .h = elements_of<T>(args.h),
                                    .weight = args.weight.f32(),
                                    .mean = args.mean,
                                    .reciprocal_std = args.rstd,
                                    .dresidual = elements_of<T>(args.dresidual),
                                    .dx = elements_of<T>(args.dx),
                                    .parts = sums,
                                    .rows = args.rows,
                                    .width = args.width};
    launch(stream, column_sums_shape(names.backward_columns, args.width, parts, N, kSums),
           norm_backward_columns<T, N, kCentred>, typed);
    launch(stream, warp_rows_shape(names.backward_rows, args.rows),
           norm_backward_rows<T, N, kCentred>, typed);
  });
  ColumnParts of_sum{.sums = sums, .count = parts, .stride = kSums * args.width};
  launch_add_parts(stream, of_sum, args.dweight.f32(), args.width);
  if constexpr (kCentred) {
    of_sum.sums += args.width;
    launch_add_parts(stream, of_sum, args.dbias.f32(), args.width);
  }
}

}  // namespace lockstep::kernels::cuda
