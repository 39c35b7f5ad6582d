#pragma once

#include <cstdint>

#include "kernels/device/device.h"
#include "kernels/ops/attention.h"

namespace lockstep {

// Rotary position embedding: turns q and k of packed qkv (attention.h), in place; v stays. In each
// head of width HD the pair (x[i], x[i + HD/2]) at position t is turned by the angle t * f_i:
//   x[i] <- x[i] cos - x[i + HD/2] sin,  x[i + HD/2] <- x[i + HD/2] cos + x[i] sin.
// The inverse turns by the negative angle: applied to dqkv it makes the gradient before the turn of
// that after it. HD is even. Arithmetic is fp32 whatever the dtype of qkv.
// Source: Su et al., "RoFormer", 2021; pairs as in Hugging Face's LlamaForCausalLM (the two halves
// of a head, not neighbours).
struct Rotary {
  View qkv = {};                 // [B,T,(NH+2*KVH)*HD]
  const float* table = nullptr;  // [>=T,HD]: of each position HD/2 cosines, then HD/2 sines
  AttentionShape shape = {};
  bool inverse = false;
};

// The frequencies f_i = base^(-2i/HD) in radians a token, i in [0, HD/2), and how they are
// stretched to a context that is longer than the one trained on at first ("llama3" in Hugging
// Face's rope_scaling): with w = original_context * f_i / (2 pi), the turns within the first
// context, those of w < low_turns become f_i / factor, those of w > high_turns stay, and between
// them the two are mixed, the share of f_i growing linearly in w from 0 to 1. Source: Llama 3.1's
// model code.
struct RotaryFrequencies {
  int64_t head_dim = 0;
  double base = 10000.0;
  double factor = 1.0;  // 1: not stretched, the rest is not read
  double low_turns = 1.0;
  double high_turns = 4.0;
  int64_t original_context = 8192;
};

// Fills the table of Rotary, [positions,HD], in host memory. Angles are computed in double, so that
// far positions are as exact as near ones.
void rotary_table(const RotaryFrequencies& frequencies, int64_t positions, float* table);

}  // namespace lockstep
