#pragma once

#include <cstdint>

#include "kernels/device/device.h"
#include "kernels/ops/attention.h"

namespace lockstep::kernels {

// Rotary position embedding: rotates q and k of packed qkv (attention.h) in-place; v is unchanged.
// In each head of width HD the pair (x[i], x[i + HD/2]) at position t is rotated by the angle t *
// f_i:
// x[i] <- x[i] cos - x[i + HD/2] sin,  x[i + HD/2] <- x[i + HD/2] cos + x[i] sin.
// The inverse rotates by the negative angle; applied to dqkv it is the backward pass. HD is even.
// Arithmetic is fp32 for any dtype of qkv.
// Source: Su et al., "RoFormer", 2021; pairs as in Hugging Face's LlamaForCausalLM (the two halves
// of a head, not adjacent elements).
struct Rotary {
  View qkv = {};                 // [B,T,(NH+2*KVH)*HD]
  const float* table = nullptr;  // [>=T,HD]: for each position HD/2 cosines, then HD/2 sines
  AttentionShape shape = {};
  bool inverse = false;
};

// The frequencies f_i = base^(-2i/HD) in radians per token, i in [0, HD/2), and their scaling to a
// longer context than in pretraining ("llama3" in Hugging Face's rope_scaling). With w =
// original_context * f_i / (2 pi), the turns within the original context:
// - w < low_turns: f_i / factor.
// - w > high_turns: f_i, unchanged.
// - between: a mix of both; the share of f_i grows linearly in w from 0 to 1.
// Source: Llama 3.1's model code.
struct RotaryFrequencies {
  int64_t head_dim = 0;
  double base = 10000.0;
  double factor = 1.0;  // 1: no scaling, the fields below are not read
  double low_turns = 1.0;
  double high_turns = 4.0;
  int64_t original_context = 8192;
};

// Fills Rotary's table, [positions,HD], in host memory. Computes angles in double, so that far
// positions are as precise as near ones.
void rotary_table(const RotaryFrequencies& frequencies, int64_t positions, float* table);

}  // namespace lockstep::kernels
