#pragma once

#include <cmath>
#include <cstring>

#include "kernels/device/cuda/reduce.cuh"
#include "kernels/ops/attention_args.cuh"
#include "kernels/ops/attention_geometry.h"

// Attention on tensor cores, in bf16 with fp32 sums. A warp has 16 rows (queries, or keys in the
// dk/dv kernel) and all columns of a tile, in the fragment layout of mma.m16n8k16. With g = lane /
// 4 and t = lane % 4, sums[n][0..1] are row g, columns 8 n + 2 t and the next, and sums[n][2..3]
// the same columns of row g + 8. Rows past the end of the sequence are read as zeros and not
// written. Source: Dao, "FlashAttention-2", 2023: online softmax, and backward from the
// log-sum-exp.
namespace lockstep::kernels::cuda {

template <int kD>
struct Tiles {
  static constexpr int kStride = kD + kAttentionPadding;

  // Starts copying rows [begin, begin + kRows) into a tile; wait with wait_for_copies().
  template <int kRows>
  static __device__ void begin_copy(Bf16* tile, const HeadRows<const Bf16>& from, int64_t begin,
                                    int64_t sequence) {
    constexpr int kChunks = kD / 8;
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks; i += kAttentionThreads) {
      const int row = i / kChunks, column = i % kChunks * 8;
      Bf16* to = tile + row * kStride + column;
      if (begin + row < sequence) {
        begin_copy_16_bytes(to, from.row(begin + row) + column);
      } else {
        store_16_bytes(to, Words4{});
      }
    }
  }

  // Loads a[16,16] from that row and column.
  static __device__ void load_left(uint32_t (&a)[4], const Bf16* tile, int row, int column) {
    const int lane = lane_index();
    load_matrices(a, tile + (row + lane % 16) * kStride + column + lane / 16 * 8);
  }
  // Loads two b[16,8], for columns n and n + 8, of a factor stored as [n, k].
  static __device__ void load_right(uint32_t (&b)[4], const Bf16* tile, int n, int k) {
    const int lane = lane_index();
    load_matrices(b, tile + (n + lane % 8 + lane / 16 * 8) * kStride + k + lane / 8 % 2 * 8);
  }
  // The same for a factor stored as [k, n].
  static __device__ void load_right_transposed(uint32_t (&b)[4], const Bf16* tile, int k, int n) {
    const int lane = lane_index();
    load_matrices_transposed(b, tile + (k + lane % 16) * kStride + n + lane / 16 * 8);
  }

  // sums[16, kColumns] += left[row..row+16, kD] * right[kColumns, kD]^T.
  template <int kColumns>
  static __device__ void multiply_rows(float (&sums)[kColumns / 8][4], const Bf16* left, int row,
                                       const Bf16* right) {
#pragma unroll
    for (int k = 0; k < kD; k += 16) {
      uint32_t a[4];
      load_left(a, left, row, k);
#pragma unroll
      for (int n = 0; n < kColumns; n += 16) {
        uint32_t b[4];
        load_right(b, right, n, k);
        multiply_two(sums[n / 8], sums[n / 8 + 1], a, b);
      }
    }
  }

  // For each of kGroups: sums[16, kD] += left[16, kDepth] * right[kDepth, kD], left rounded to
  // bf16.
  template <int kDepth, int kGroups>
  static __device__ void multiply_groups(float (&sums)[kGroups][kD / 8][4],
                                         const float (&left)[kGroups][kDepth / 8][4],
                                         const Bf16* right) {
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
      uint32_t a[kGroups][4];
#pragma unroll
      for (int g = 0; g < kGroups; ++g) round_left(a[g], left[g][k / 8], left[g][k / 8 + 1]);
#pragma unroll
      for (int n = 0; n < kD; n += 16) {
        uint32_t b[4];
        load_right_transposed(b, right, k, n);
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          multiply_two(sums[g][n / 8], sums[g][n / 8 + 1], a[g], b);
        }
      }
    }
  }
  template <int kDepth>
  static __device__ void multiply_sums(float (&sums)[kD / 8][4], const float (&left)[kDepth / 8][4],
                                       const Bf16* right) {
    multiply_groups<kDepth, 1>(reinterpret_cast<float(&)[1][kD / 8][4]>(sums),
                               reinterpret_cast<const float(&)[1][kDepth / 8][4]>(left), right);
  }

  // a[16,16] <- two blocks of sums, of 8 columns each.
  static __device__ void round_left(uint32_t (&a)[4], const float (&low)[4],
                                    const float (&high)[4]) {
    a[0] = to_bf16_pair(low[0], low[1]);
    a[1] = to_bf16_pair(low[2], low[3]);
    a[2] = to_bf16_pair(high[0], high[1]);
    a[3] = to_bf16_pair(high[2], high[3]);
  }

  static __device__ void multiply_two(float (&first)[4], float (&second)[4], const uint32_t (&a)[4],
                                      const uint32_t (&b)[4]) {
    const uint32_t left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
    multiply_add(first, a, left);
    multiply_add(second, a, right);
  }

  // Stores rows [begin, begin + 16) of a result, each multiplied by its factor.
  static __device__ void store_rows(const HeadRows<Bf16>& to, int64_t begin, int64_t sequence,
                                    const float (&sums)[kD / 8][4], const float (&factors)[2]) {
    const int lane = lane_index();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t t = begin + lane / 4 + 8 * half;
      if (t >= sequence) continue;
      Bf16* row = to.row(t) + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kD / 8; ++n) {
        const uint32_t pair =
            to_bf16_pair(sums[n][2 * half] * factors[half], sums[n][2 * half + 1] * factors[half]);
        memcpy(reinterpret_cast<uint32_t*>(row + 8 * n), &pair, sizeof pair);
      }
    }
  }
};

// The tile, head and sample of a block. With last_first, the last tiles start first, because they
// have the most keys.
struct TilePlace {
  int64_t begin;  // first row of the tile in the sequence
  int64_t head;
  int64_t sample;
  int row;  // first row of the warp in the tile
};
__device__ inline TilePlace tile_place(bool last_first, int64_t rows = kAttentionTile) {
  const int64_t tile = last_first ? int64_t{gridDim.x} - 1 - blockIdx.x : int64_t{blockIdx.x};
  return {tile * rows, blockIdx.y, blockIdx.z, warp_index() * 16};
}

// The running maximum and sum of a lane's two rows. The sum covers only this lane's columns.
struct OnlineSoftmax {
  float high[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0.0f, 0.0f};
};

__device__ inline float max_of_row(float value) {
  value = fmaxf(value, shuffle_xor(value, 1));
  return fmaxf(value, shuffle_xor(value, 2));
}
__device__ inline float sum_of_row(float value) {
  value += shuffle_xor(value, 1);
  return value + shuffle_xor(value, 2);
}

// Masks scores of keys that the query does not see; first_key and first_row are the first of the
// score block.
template <int kColumns>
__device__ void hide_later_keys(const AttentionArgs<Bf16>& args, float (&scores)[kColumns / 8][4],
                                int64_t first_key, int64_t first_row) {
  const int lane = lane_index();
#pragma unroll
  for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t key = first_key + 8 * n + lane % 4 * 2 + i % 2;
      if (key >= args.keys_of(first_row + lane / 4 + i / 2 * 8)) scores[n][i] = -INFINITY;
    }
  }
}

// scores <- 2^((scores - the new maximum) * exponent_scale). Rescales the running sums and `out` to
// the new maximum.
template <int kColumns, int kD>
__device__ void next_softmax(float (&scores)[kColumns / 8][4], float exponent_scale,
                             OnlineSoftmax& softmax, float (&out)[kD / 8][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float high = softmax.high[half];
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
      high = fmaxf(high, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
    }
    high = max_of_row(high);
    const float before = fast_exp2((softmax.high[half] - high) * exponent_scale);
    const float shift = high * exponent_scale;
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        scores[n][i] = fast_exp2(fmaf(scores[n][i], exponent_scale, -shift));
        sum += scores[n][i];
      }
    }
    softmax.high[half] = high;
    softmax.sum[half] = softmax.sum[half] * before + sum;
#pragma unroll
    for (int n = 0; n < kD / 8; ++n) {
      out[n][2 * half] *= before;
      out[n][2 * half + 1] *= before;
    }
  }
}

// Overlaps copies with computation: loads values while computing scores, and the next keys while
// summing over the values. A warp has the same 16 rows of each group of queries.
template <int kD>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_forward_tiles(AttentionArgs<Bf16> args) {
  using T = Tiles<kD>;
  constexpr int kTile = kAttentionTile, kGroups = kAttentionQueryGroups<kD>;
  constexpr int kRows = kGroups * kTile;
  static_assert(kGroups <= 2);  // queries must fit into the memory of keys and values
  auto* k_tile = shared_memory<Bf16>();
  Bf16* v_tile = k_tile + kTile * T::kStride;
  const TilePlace place = tile_place(true, kRows);
  const int64_t kv_head = place.head / (args.heads / args.kv_heads);
  const auto q = packed_rows(args.qkv, args, place.sample, place.head);
  const auto k = packed_rows(args.qkv, args, place.sample, args.heads + kv_head);
  const auto v = packed_rows(args.qkv, args, place.sample, args.heads + args.kv_heads + kv_head);

  T::template begin_copy<kRows>(k_tile, q, place.begin, args.sequence);
  commit_copies();
  wait_for_copies<0>();
  sync_block();
  uint32_t queries[kGroups][kD / 16][4];
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
#pragma unroll
    for (int i = 0; i < kD / 16; ++i) {
      T::load_left(queries[g][i], k_tile, g * kTile + place.row, 16 * i);
    }
  }
  sync_block();

  float out[kGroups][kD / 8][4] = {};
  OnlineSoftmax softmax[kGroups];
  const float exponent_scale = args.scale * kLog2E;
  const int64_t keys = args.keys_of(place.begin + kRows - 1);  // of all the block's queries
  T::template begin_copy<kTile>(k_tile, k, 0, args.sequence);
  commit_copies();
  for (int64_t key = 0; key < keys; key += kTile) {
    T::template begin_copy<kTile>(v_tile, v, key, args.sequence);
    commit_copies();
    wait_for_copies<1>();
    sync_block();
    float scores[kGroups][kTile / 8][4] = {};
#pragma unroll
    for (int i = 0; i < kD / 16; ++i) {
#pragma unroll
      for (int n = 0; n < kTile; n += 16) {
        uint32_t b[4];
        T::load_right(b, k_tile, n, 16 * i);
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          T::multiply_two(scores[g][n / 8], scores[g][n / 8 + 1], queries[g][i], b);
        }
      }
    }
    sync_block();
    if (key + kTile < keys) T::template begin_copy<kTile>(k_tile, k, key + kTile, args.sequence);
    commit_copies();
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int64_t first_row = place.begin + g * kTile;
      if (key + kTile > args.keys_of(first_row)) {
        hide_later_keys<kTile>(args, scores[g], key, first_row + place.row);
      }
      next_softmax<kTile, kD>(scores[g], exponent_scale, softmax[g], out[g]);
    }
    wait_for_copies<1>();
    sync_block();
    T::template multiply_groups<kTile, kGroups>(out, scores, v_tile);
    sync_block();
  }

  const int lane = lane_index();
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const int64_t first_row = place.begin + g * kTile + place.row;
    float factors[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = sum_of_row(softmax[g].sum[half]);
      factors[half] = 1.0f / sum;
      const int64_t t = first_row + lane / 4 + 8 * half;
      if (args.lse != nullptr && lane % 4 == 0 && t < args.sequence) {
        of_head(args.lse, args, place.sample, place.head)[t] =
            softmax[g].high[half] * args.scale + logf(sum);
      }
    }
    T::store_rows(out_rows(args.out, args, place.sample, place.head), first_row, args.sequence,
                  out[g], factors);
  }
}

// Computes dq of 64 queries: the sum of ds * k over keys, in ascending order.
template <int kD>
__global__ void __launch_bounds__(kAttentionThreads) attention_dq_tiles(AttentionArgs<Bf16> args) {
  using T = Tiles<kD>;
  constexpr int kTile = kAttentionTile, kInner = kAttentionInnerTile<kD>;
  auto* q_tile = shared_memory<Bf16>();
  Bf16* dout_tile = q_tile + kTile * T::kStride;
  Bf16* k_tile = dout_tile + kTile * T::kStride;
  Bf16* v_tile = k_tile + kInner * T::kStride;
  const TilePlace place = tile_place(true);
  const int64_t kv_head = place.head / (args.heads / args.kv_heads);
  const auto q = packed_rows(args.qkv, args, place.sample, place.head);
  const auto k = packed_rows(args.qkv, args, place.sample, args.heads + kv_head);
  const auto v = packed_rows(args.qkv, args, place.sample, args.heads + args.kv_heads + kv_head);
  T::template begin_copy<kTile>(q_tile, q, place.begin, args.sequence);
  T::template begin_copy<kTile>(dout_tile, out_rows(args.dout, args, place.sample, place.head),
                                place.begin, args.sequence);

  const int lane = lane_index();
  float lse[2] = {}, delta[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t t = place.begin + place.row + lane / 4 + 8 * half;
    if (t >= args.sequence) continue;
    lse[half] = of_head(args.lse, args, place.sample, place.head)[t] * kLog2E;
    delta[half] = of_head(args.delta, args, place.sample, place.head)[t];
  }

  float dq[kD / 8][4] = {};
  const float exponent_scale = args.scale * kLog2E;
  const int64_t keys = args.keys_of(place.begin + kTile - 1);
  for (int64_t key = 0; key < keys; key += kInner) {
    T::template begin_copy<kInner>(k_tile, k, key, args.sequence);
    T::template begin_copy<kInner>(v_tile, v, key, args.sequence);
    commit_copies();
    wait_for_copies<0>();
    sync_block();
    float scores[kInner / 8][4] = {}, dp[kInner / 8][4] = {};
    T::template multiply_rows<kInner>(scores, q_tile, place.row, k_tile);
    T::template multiply_rows<kInner>(dp, dout_tile, place.row, v_tile);
    if (key + kInner > args.keys_of(place.begin)) {
      hide_later_keys<kInner>(args, scores, key, place.begin + place.row);
    }
#pragma unroll
    for (int n = 0; n < kInner / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float p = fast_exp2(fmaf(scores[n][i], exponent_scale, -lse[i / 2]));
        dp[n][i] = p * (dp[n][i] - delta[i / 2]);
      }
    }
    T::template multiply_sums<kInner>(dq, dp, k_tile);
    sync_block();
  }
  const float factors[2] = {args.scale, args.scale};
  T::store_rows(packed_rows(args.dqkv, args, place.sample, place.head), place.begin + place.row,
                args.sequence, dq, factors);
}

// Computes dk and dv of 64 keys: the sums of ds^T q and p^T dout over the heads that share them and
// over queries, in ascending order. Scores are transposed: a warp's rows are keys.
template <int kD>
__global__ void __launch_bounds__(kAttentionThreads) attention_dkv_tiles(AttentionArgs<Bf16> args) {
  using T = Tiles<kD>;
  constexpr int kTile = kAttentionTile, kInner = kAttentionInnerTile<kD>;
  auto* k_tile = shared_memory<Bf16>();
  Bf16* v_tile = k_tile + kTile * T::kStride;
  Bf16* q_tile = v_tile + kTile * T::kStride;
  Bf16* dout_tile = q_tile + kInner * T::kStride;
  auto* lse = reinterpret_cast<float*>(dout_tile + kInner * T::kStride);
  float* delta = lse + kInner;
  const TilePlace place = tile_place(false);
  const int64_t group = args.heads / args.kv_heads;
  const int64_t k_head = args.heads + place.head, v_head = k_head + args.kv_heads;
  T::template begin_copy<kTile>(k_tile, packed_rows(args.qkv, args, place.sample, k_head),
                                place.begin, args.sequence);
  T::template begin_copy<kTile>(v_tile, packed_rows(args.qkv, args, place.sample, v_head),
                                place.begin, args.sequence);

  float dk[kD / 8][4] = {}, dv[kD / 8][4] = {};
  const float exponent_scale = args.scale * kLog2E;
  const int lane = lane_index();
  for (int64_t head = place.head * group; head < (place.head + 1) * group; ++head) {
    const auto q = packed_rows(args.qkv, args, place.sample, head);
    const auto dout = out_rows(args.dout, args, place.sample, head);
    for (int64_t query = args.causal ? place.begin : 0; query < args.sequence; query += kInner) {
      T::template begin_copy<kInner>(q_tile, q, query, args.sequence);
      T::template begin_copy<kInner>(dout_tile, dout, query, args.sequence);
      commit_copies();
      if (static_cast<int>(threadIdx.x) < kInner) {
        const int64_t t = query + threadIdx.x;
        const bool inside = t < args.sequence;
        const float* lse_of_head = of_head(args.lse, args, place.sample, head);
        const float* delta_of_head = of_head(args.delta, args, place.sample, head);
        lse[threadIdx.x] = inside ? lse_of_head[t] * kLog2E : 0.0f;
        delta[threadIdx.x] = inside ? delta_of_head[t] : 0.0f;
      }
      wait_for_copies<0>();
      sync_block();
      float p[kInner / 8][4] = {}, dp[kInner / 8][4] = {};
      T::template multiply_rows<kInner>(p, k_tile, place.row, q_tile);
      T::template multiply_rows<kInner>(dp, v_tile, place.row, dout_tile);
      const bool diagonal = args.causal && query < place.begin + kTile;
#pragma unroll
      for (int n = 0; n < kInner / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int column = 8 * n + lane % 4 * 2 + i % 2;
          const int64_t key = place.begin + place.row + lane / 4 + i / 2 * 8;
          const bool hidden = diagonal && key > query + column;
          p[n][i] = hidden ? 0.0f : fast_exp2(fmaf(p[n][i], exponent_scale, -lse[column]));
          dp[n][i] = p[n][i] * (dp[n][i] - delta[column]);
        }
      }
      T::template multiply_sums<kInner>(dv, p, dout_tile);
      T::template multiply_sums<kInner>(dk, dp, q_tile);
      sync_block();
    }
  }
  const float scales[2] = {args.scale, args.scale}, ones[2] = {1.0f, 1.0f};
  T::store_rows(packed_rows(args.dqkv, args, place.sample, k_head), place.begin + place.row,
                args.sequence, dk, scales);
  T::store_rows(packed_rows(args.dqkv, args, place.sample, v_head), place.begin + place.row,
                args.sequence, dv, ones);
}

}  // namespace lockstep::kernels::cuda
