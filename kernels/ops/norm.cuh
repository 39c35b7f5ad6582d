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

// Reduces kCount sums over the threads of a block at once. `shared` holds kCount floats per warp;
// it may be reused after the next barrier.
template <int kCount>
__device__ __forceinline__ void reduce_block_sums(float (&sums)[kCount], float* shared) {
#pragma unroll
  for (float& sum : sums) sum = reduce_warp(sum, Plus{});
  if (lane_index() == 0) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) shared[warp_index() * kCount + i] = sums[i];
  }
  sync_block();
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    sums[i] = shared[i];
    for (int warp = 1; warp < warp_count(); ++warp) sums[i] += shared[warp * kCount + i];
  }
}

// A thread loads N columns of kNormRows rows, and the numbers of each row.
template <class T, int N, bool kCentred>
struct NormRows {
  Words4 dy[kNormRows];
  Words4 h[kNormRows];
  Words4 others[kNormRows];
  float mean[kNormRows];
  float scale[kNormRows];

  // Rows from `end` on are 0.
  __device__ __forceinline__ void load(const NormBackwardRows<T>& args, int64_t first, int64_t end,
                                       int64_t column) {
    static_assert(sizeof(T) * N == sizeof(Words4));
#pragma unroll
    for (int r = 0; r < kNormRows; ++r) {
      const int64_t row = first + r, at = row * args.width + column;
      const bool exists = row < end;
      dy[r] = exists ? load_16_bytes(args.dy + at) : Words4{};
      h[r] = exists ? load_16_bytes(args.h + at) : Words4{};
      others[r] = exists && args.dresidual ? load_16_bytes(args.dresidual + at) : Words4{};
      mean[r] = exists && kCentred ? args.mean[row] : 0.0f;
      scale[r] = exists ? args.reciprocal_std[row] : 0.0f;
    }
  }
};

// Computes dx and the sums over rows in one pass: a block takes a part of the rows, kNormRows at a
// time, and each thread N columns of them. The next rows are under way while the block reduces. dx
// may be dy or dresidual: a thread reads its columns of a row before it writes them. Threads after
// the last column work on the last ones, without effect.
template <class T, int N, bool kCentred>
__global__ void __launch_bounds__(kNormThreadsMax) norm_backward(NormBackwardRows<T> args) {
  constexpr int kSums = kCentred ? 2 : 1;
  const int64_t row_begin = args.rows * blockIdx.x / gridDim.x;
  const int64_t row_end = args.rows * (int64_t{blockIdx.x} + 1) / gridDim.x;
  const bool has_columns = int64_t{threadIdx.x} * N < args.width;
  const int64_t column = has_columns ? int64_t{threadIdx.x} * N : args.width - N;
  const float width = static_cast<float>(args.width);
  float* shared = shared_memory<float>();
  float* next_shared = shared + warp_count() * kNormSums;
  float weights[N], columns[kSums][N] = {};  // for dweight and, if centred, dbias
  load_values(weights, args.weight + column);
  if (!has_columns) {
    for (float& weight : weights) weight = 0.0f;
  }

  NormRows<T, N, kCentred> rows;
  rows.load(args, row_begin, row_end, column);
  for (int64_t first = row_begin; first < row_end; first += kNormRows) {
    const NormRows<T, N, kCentred> now = rows;
    rows.load(args, first + kNormRows, row_end, column);
    float sums[kNormSums] = {};  // of g = dy * weight and of g * hat, per row
#pragma unroll
    for (int r = 0; r < kNormRows; ++r) {
      float dy[N], h[N];
      unpack_values(dy, now.dy[r], args.dy);
      unpack_values(h, now.h[r], args.h);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float hat = (h[j] - now.mean[r]) * now.scale[r];
        const float g = dy[j] * weights[j];
        sums[2 * r] += g;
        sums[2 * r + 1] += g * hat;
        columns[0][j] += dy[j] * hat;
        if constexpr (kCentred) columns[1][j] += dy[j];
      }
    }
    reduce_block_sums(sums, shared);
#pragma unroll
    for (int r = 0; r < kNormRows; ++r) {
      const int64_t row = first + r;
      if (row >= row_end || !has_columns) continue;
      const float mean_g = kCentred ? sums[2 * r] / width : 0.0f;
      const float mean_g_hat = sums[2 * r + 1] / width;
      float dy[N], h[N], others[N];
      unpack_values(dy, now.dy[r], args.dy);
      unpack_values(h, now.h[r], args.h);
      unpack_values(others, now.others[r], args.dresidual);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float hat = (h[j] - now.mean[r]) * now.scale[r];
        dy[j] = (dy[j] * weights[j] - mean_g - hat * mean_g_hat) * now.scale[r] + others[j];
      }
      store_values(args.dx + row * args.width + column, dy);
    }
    // The other half next time, so that one barrier per turn is enough.
    float* const used = shared;
    shared = next_shared;
    next_shared = used;
  }
  if (!has_columns) return;
#pragma unroll
  for (int sum = 0; sum < kSums; ++sum) {
    store_values(args.parts + (int64_t{blockIdx.x} * kSums + sum) * args.width + column,
                 columns[sum]);
  }
}

struct NormNames {
  const char* forward;
  const char* backward;
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

// Sums over rows in at most `parts_max` parts. Rows of packs that fit into a block take one pass.
// Others take two: the sums over rows come before dx, because dx may overwrite dy.
template <bool kCentred>
void launch_norm_backward(Stream& stream, const NormNames& names, const LayerNormBackward& args,
                          int parts_max) {
  constexpr int kSums = kCentred ? 2 : 1;
  if (args.rows == 0) return;
  int64_t parts = row_parts(args.rows, parts_max);
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
    if constexpr (N > 1) {
      const LaunchShape shape =
          norm_backward_shape(names.backward, args.width, norm_parts(args.rows, parts_max), N);
      if (shape.threads <= kNormThreadsMax) {
        parts = shape.blocks.x;
        return launch(stream, shape, norm_backward<T, N, kCentred>, typed);
      }
    }
    launch(stream, column_sums_shape(names.backward_columns, args.width, parts, N, kSums),
           norm_backward_columns<T, N, kCentred>, typed);
    launch(stream, warp_rows_shape(names.backward_rows, args.rows),
           norm_backward_rows<T, N, kCentred>, typed);
  });
  launch_add_parts(stream, {.sums = sums, .count = parts, .stride = kSums * args.width},
                   {args.dweight.f32(), kCentred ? args.dbias.f32() : nullptr}, args.width);
}

}  // namespace lockstep::kernels::cuda
