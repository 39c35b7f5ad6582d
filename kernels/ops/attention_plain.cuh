#pragma once

#include <cmath>

#include "kernels/device/cuda/reduce.cuh"
#include "kernels/device/cuda/values.cuh"
#include "kernels/ops/attention_args.cuh"
#include "kernels/ops/attention_geometry.h"

// Attention without tensor cores, for any head_dim up to kAttentionHeadDimMax, in fp32, or in bf16
// with fp32 sums. A warp has one row of one head, and each lane every 32nd column; it loops over
// the other rows one by one. Uses the same formulas as attention_tiles.cuh.
namespace lockstep::kernels::cuda {

// The lane's columns of a row; 0 past head_dim.
struct LaneRow {
  float value[kAttentionLaneColumns] = {};

  template <class T>
  __device__ void load(const T* row, int64_t head_dim) {
    for (int i = 0; i < kAttentionLaneColumns; ++i) {
      const int column = lane_index() + i * kWarpThreads;
      value[i] = column < head_dim ? to_float(row[column]) : 0.0f;
    }
  }
  template <class T>
  __device__ void store(T* row, int64_t head_dim, float factor) const {
    for (int i = 0; i < kAttentionLaneColumns; ++i) {
      const int column = lane_index() + i * kWarpThreads;
      if (column < head_dim) store_values(row + column, {value[i] * factor});
    }
  }
  __device__ void add(const LaneRow& other, float factor) {
    for (int i = 0; i < kAttentionLaneColumns; ++i) {
      value[i] = fmaf(other.value[i], factor, value[i]);
    }
  }
  __device__ void scale(float factor) {
    for (float& v : value) v *= factor;
  }
};

// Returns the dot product of two rows in every lane.
__device__ inline float dot_of_rows(const LaneRow& a, const LaneRow& b) {
  float sum = 0.0f;
  for (int i = 0; i < kAttentionLaneColumns; ++i) sum = fmaf(a.value[i], b.value[i], sum);
  return reduce_warp(sum, Plus());
}

// The row assigned to a warp. t < 0: the warp has no row.
struct RowPlace {
  int64_t t = -1;
  int64_t head = 0;
  int64_t sample = 0;
};
__device__ inline RowPlace row_place(int64_t samples, int64_t heads, int64_t sequence) {
  const int64_t index = int64_t{blockIdx.x} * kAttentionWarps + warp_index();
  if (index >= samples * heads * sequence) return {};
  return {index % sequence, index / sequence % heads, index / sequence / heads};
}

// Computes out and lse of one query.
template <class T>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_forward_plain(AttentionArgs<T> args, int64_t samples) {
  const RowPlace at = row_place(samples, args.heads, args.sequence);
  if (at.t < 0) return;
  const int64_t kv_head = at.head / (args.heads / args.kv_heads);
  const auto k = packed_rows(args.qkv, args, at.sample, args.heads + kv_head);
  const auto v = packed_rows(args.qkv, args, at.sample, args.heads + args.kv_heads + kv_head);
  LaneRow query, other, out;
  query.load(packed_rows(args.qkv, args, at.sample, at.head).row(at.t), args.head_dim);
  query.scale(args.scale);
  float high = -INFINITY, sum = 0.0f;
  for (int64_t key = 0; key < args.keys_of(at.t); ++key) {
    other.load(k.row(key), args.head_dim);
    const float score = dot_of_rows(query, other);
    const float next = fmaxf(high, score);
    const float before = expf(high - next), p = expf(score - next);
    high = next;
    sum = fmaf(sum, before, p);
    out.scale(before);
    other.load(v.row(key), args.head_dim);
    out.add(other, p);
  }
  out.store(out_rows(args.out, args, at.sample, at.head).row(at.t), args.head_dim, 1.0f / sum);
  if (args.lse != nullptr && lane_index() == 0) {
    of_head(args.lse, args, at.sample, at.head)[at.t] = high + logf(sum);
  }
}

template <class T>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_delta(AttentionArgs<T> args, int64_t samples) {
  const RowPlace at = row_place(samples, args.heads, args.sequence);
  if (at.t < 0) return;
  LaneRow out, dout;
  out.load(out_rows(args.out, args, at.sample, at.head).row(at.t), args.head_dim);
  dout.load(out_rows(args.dout, args, at.sample, at.head).row(at.t), args.head_dim);
  const float delta = dot_of_rows(out, dout);
  if (lane_index() == 0) of_head(args.delta, args, at.sample, at.head)[at.t] = delta;
}

// Computes dq of one query.
template <class T>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_dq_plain(AttentionArgs<T> args, int64_t samples) {
  const RowPlace at = row_place(samples, args.heads, args.sequence);
  if (at.t < 0) return;
  const int64_t kv_head = at.head / (args.heads / args.kv_heads);
  const auto k = packed_rows(args.qkv, args, at.sample, args.heads + kv_head);
  const auto v = packed_rows(args.qkv, args, at.sample, args.heads + args.kv_heads + kv_head);
  LaneRow query, dout, key_row, value_row, dq;
  query.load(packed_rows(args.qkv, args, at.sample, at.head).row(at.t), args.head_dim);
  query.scale(args.scale);
  dout.load(out_rows(args.dout, args, at.sample, at.head).row(at.t), args.head_dim);
  const float lse = of_head(args.lse, args, at.sample, at.head)[at.t];
  const float delta = of_head(args.delta, args, at.sample, at.head)[at.t];
  for (int64_t key = 0; key < args.keys_of(at.t); ++key) {
    key_row.load(k.row(key), args.head_dim);
    value_row.load(v.row(key), args.head_dim);
    const float p = expf(dot_of_rows(query, key_row) - lse);
    dq.add(key_row, p * (dot_of_rows(dout, value_row) - delta));
  }
  dq.store(packed_rows(args.dqkv, args, at.sample, at.head).row(at.t), args.head_dim, args.scale);
}

// Computes dk and dv of one key, summed over the heads that share it and the queries that see it.
template <class T>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_dkv_plain(AttentionArgs<T> args, int64_t samples) {
  const RowPlace at = row_place(samples, args.kv_heads, args.sequence);
  if (at.t < 0) return;
  const int64_t group = args.heads / args.kv_heads;
  const int64_t k_head = args.heads + at.head, v_head = k_head + args.kv_heads;
  LaneRow key, value, query, dout, dk, dv;
  key.load(packed_rows(args.qkv, args, at.sample, k_head).row(at.t), args.head_dim);
  key.scale(args.scale);
  value.load(packed_rows(args.qkv, args, at.sample, v_head).row(at.t), args.head_dim);
  for (int64_t head = at.head * group; head < (at.head + 1) * group; ++head) {
    const auto q = packed_rows(args.qkv, args, at.sample, head);
    const auto dout_of_head = out_rows(args.dout, args, at.sample, head);
    const float* lse = of_head(args.lse, args, at.sample, head);
    const float* delta = of_head(args.delta, args, at.sample, head);
    for (int64_t t = args.causal ? at.t : 0; t < args.sequence; ++t) {
      query.load(q.row(t), args.head_dim);
      dout.load(dout_of_head.row(t), args.head_dim);
      const float p = expf(dot_of_rows(key, query) - lse[t]);
      dv.add(dout, p);
      dk.add(query, p * (dot_of_rows(value, dout) - delta[t]));
    }
  }
  dk.store(packed_rows(args.dqkv, args, at.sample, k_head).row(at.t), args.head_dim, args.scale);
  dv.store(packed_rows(args.dqkv, args, at.sample, v_head).row(at.t), args.head_dim, 1.0f);
}

}  // namespace lockstep::kernels::cuda
