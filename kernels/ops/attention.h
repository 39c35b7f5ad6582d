#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/device.h"

namespace lockstep {

// B batch, T sequence, NH heads of width HD, C = NH*HD.
struct AttentionShape {
  int64_t batch = 0;
  int64_t sequence = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;

  bool operator==(const AttentionShape&) const = default;
};

// Causal self-attention: out = softmax(mask(q k^T / sqrt(HD))) v for each head, from packed
// qkv[b,t] = q (C), k (C), v (C), each head after head. Probabilities are not kept, only their
// log-sum-exp, as in Dao, "FlashAttention-2", 2023.
struct AttentionForward {
  ConstView qkv = {};    // [B,T,3C]
  View out = {};         // [B,T,C]
  float* lse = nullptr;  // [B,NH,T], for backward; null: not kept
  AttentionShape shape = {};
  Workspace workspace = {};  // attention_workspace(shape)
};

struct AttentionBackward {
  ConstView dout = {};         // [B,T,C]
  ConstView qkv = {};          // [B,T,3C]
  ConstView out = {};          // [B,T,C]
  const float* lse = nullptr;  // [B,NH,T]
  View dqkv = {};              // [B,T,3C], overwritten
  AttentionShape shape = {};
  Workspace workspace = {};  // attention_workspace(shape)
};

// For forward and backward, with the number of threads set now.
size_t attention_workspace(const AttentionShape& shape);

// How the CPU lays its scratch out: strips of this many queries, rows padded so that they don't all
// fall into the same lines of the cache, and so many floats for each thread.
inline constexpr int64_t kAttentionBlockRows = 32;
int64_t attention_stride(const AttentionShape& shape);
int64_t attention_scratch_floats(const AttentionShape& shape);

}  // namespace lockstep
