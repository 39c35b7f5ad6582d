#pragma once

#include <cstdint>

#include "kernels/ops/attention.h"

namespace lockstep::kernels::cuda {

// Arguments of the attention kernels. T: float or Bf16.
template <class T>
struct AttentionArgs {
  const T* qkv = nullptr;   // [B,T,(NH+2*KVH)*HD]
  T* out = nullptr;         // [B,T,NH*HD]
  const T* dout = nullptr;  // [B,T,NH*HD]
  T* dqkv = nullptr;        // as qkv
  float* lse = nullptr;     // [B,NH,T]
  float* delta = nullptr;   // [B,NH,T]: the row sums of dout * out
  int64_t sequence = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  bool causal = true;
  float scale = 0.0f;  // 1/sqrt(HD)

  // Returns how many keys, from the first one on, a query sees: all if not causal.
  __device__ int64_t keys_of(int64_t query) const {
    return causal && query < sequence ? query + 1 : sequence;
  }
};

// One head of one sample: row t is at first + t * stride.
template <class T>
struct HeadRows {
  T* first;
  int64_t stride;
  __device__ T* row(int64_t t) const { return first + t * stride; }
};

// Returns the head's rows in packed qkv; `head` counts the heads of q, then k, then v.
template <class T, class Element>
__device__ HeadRows<T> packed_rows(T* qkv, const AttentionArgs<Element>& args, int64_t sample,
                                   int64_t head) {
  const int64_t stride = (args.heads + 2 * args.kv_heads) * args.head_dim;
  return {qkv + sample * args.sequence * stride + head * args.head_dim, stride};
}

// Returns the head's rows in out or dout.
template <class T, class Element>
__device__ HeadRows<T> out_rows(T* out, const AttentionArgs<Element>& args, int64_t sample,
                                int64_t head) {
  const int64_t stride = args.heads * args.head_dim;
  return {out + sample * args.sequence * stride + head * args.head_dim, stride};
}

// Returns the head's values in lse or delta.
template <class T, class Element>
__device__ T* of_head(T* values, const AttentionArgs<Element>& args, int64_t sample, int64_t head) {
  return values + (sample * args.heads + head) * args.sequence;
}

}  // namespace lockstep::kernels::cuda
