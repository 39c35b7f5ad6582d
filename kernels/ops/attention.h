#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/device.h"

namespace lockstep::kernels {

// B batch, T sequence, NH query heads, KVH key/value heads, each of width HD; C = NH*HD, D =
// KVH*HD. KVH must divide NH (CHECK). Query head h reads key/value head h / (NH/KVH) (Ainslie et
// al., "GQA", 2023); with KVH = NH each query head has its own. A query sees the keys up to its own
// place if the attention is causal, else all keys of its sequence.
struct AttentionShape {
  int64_t batch = 0;
  int64_t sequence = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t kv_heads = 0;
  bool causal = true;

  int64_t width() const { return heads * head_dim; }              // C
  int64_t kv_width() const { return kv_heads * head_dim; }        // D
  int64_t qkv_width() const { return width() + 2 * kv_width(); }  // of a packed row
  // Returns how many keys, from the first one on, query `t` sees.
  int64_t keys_of(int64_t t) const { return causal ? t + 1 : sequence; }
  bool operator==(const AttentionShape&) const = default;
};

// The kernels that compute a call on CUDA: our own, or cuDNN's (kernels/ops/dnn/dnn.h). cuDNN
// supports only some causal shapes, only bf16, and needs the workspace that
// dnn::prepare_attention() returns. Both write the same log-sum-exp, so one can run backward from
// the other's forward.
enum class AttentionBy : uint8_t { kOwn, kCudnn };

// Self-attention: out = softmax(mask(q k^T / sqrt(HD))) v for each head, from packed
// qkv[b,t] = q (C), k (D), v (D), each head after head. Stores only the log-sum-exp of the
// probabilities, as in Dao, "FlashAttention-2", 2023.
// On the CPU all tensors are fp32. On CUDA all tensors of a call are fp32, or all are bf16, and
// head_dim is at most kAttentionHeadDimMax. With bf16, scores and sums are fp32; if head_dim is 64
// or 128, tensor cores are used and the probabilities are rounded to bf16.
struct AttentionForward {
  ConstView qkv = {};    // [B,T,C+2D]
  View out = {};         // [B,T,C]
  float* lse = nullptr;  // [B,NH,T], for backward; null: not stored
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

// Returns the bytes that our own forward and backward kernels need; on the CPU for the current
// number of threads.
size_t attention_workspace(const AttentionShape& shape, DeviceType type);

// CPU scratch layout: strips of kAttentionBlockRows queries. attention_stride() is the padded row
// length, chosen so that rows do not all map to the same cache lines. attention_scratch_floats() is
// the size for each thread.
inline constexpr int64_t kAttentionBlockRows = 32;
int64_t attention_stride(const AttentionShape& shape);
int64_t attention_scratch_floats(const AttentionShape& shape);

}  // namespace lockstep::kernels
