#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/device.h"

namespace lockstep {

// B batch, T sequence, NH heads of queries and KVH of keys and values, each of width HD; C = NH*HD,
// D = KVH*HD. KVH divides NH (CHECK): head h of the queries reads head h / (NH/KVH) of the keys and
// values (Ainslie et al., "GQA", 2023); with KVH = NH each has its own.
struct AttentionShape {
  int64_t batch = 0;
  int64_t sequence = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t kv_heads = 0;

  int64_t width() const { return heads * head_dim; }              // C
  int64_t kv_width() const { return kv_heads * head_dim; }        // D
  int64_t qkv_width() const { return width() + 2 * kv_width(); }  // of a packed row
  bool operator==(const AttentionShape&) const = default;
};

// Whose kernels compute a call on CUDA. cuDNN's (kernels/ops/dnn/dnn.h) take a part of the shapes,
// in bf16, and a workspace that dnn::prepare_attention() says; both write the same log-sum-exp, so
// that either may go backward from the other's forward.
enum class AttentionBy : uint8_t { kOwn, kCudnn };

// Causal self-attention: out = softmax(mask(q k^T / sqrt(HD))) v for each head, from packed
// qkv[b,t] = q (C), k (D), v (D), each head after head. Probabilities are not kept, only their
// log-sum-exp, as in Dao, "FlashAttention-2", 2023.
// On the CPU fp32. On CUDA all tensors of a call in fp32, or all in bf16 (scores and sums in fp32;
// the probabilities are rounded to bf16 where head_dim is 64 or 128 and the tensor cores multiply
// them), and head_dim is at most kAttentionHeadDimMax.
struct AttentionForward {
  ConstView qkv = {};    // [B,T,C+2D]
  View out = {};         // [B,T,C]
  float* lse = nullptr;  // [B,NH,T], for backward; null: not kept
  AttentionShape shape = {};
  Workspace workspace = {};  // attention_workspace(shape, device's type)
  AttentionBy by = AttentionBy::kOwn;
};

struct AttentionBackward {
  ConstView dout = {};         // [B,T,C]
  ConstView qkv = {};          // [B,T,C+2D]
  ConstView out = {};          // [B,T,C]
  const float* lse = nullptr;  // [B,NH,T]
  View dqkv = {};              // [B,T,C+2D], overwritten
  AttentionShape shape = {};
  Workspace workspace = {};  // attention_workspace(shape, device's type)
  AttentionBy by = AttentionBy::kOwn;
};

inline constexpr int kAttentionHeadDimMax = 256;

// For forward and backward of our own; on the CPU with the number of threads set now.
size_t attention_workspace(const AttentionShape& shape, DeviceType type);

// How the CPU lays its scratch out: strips of this many queries, rows padded so that they don't all
// fall into the same lines of the cache, and so many floats for each thread.
inline constexpr int64_t kAttentionBlockRows = 32;
int64_t attention_stride(const AttentionShape& shape);
int64_t attention_scratch_floats(const AttentionShape& shape);

}  // namespace lockstep
