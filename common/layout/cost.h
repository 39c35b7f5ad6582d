#pragma once

#include <cstdint>

#include "common/layout/model_config.h"

namespace lockstep {

// How the FLOPs of a token (forward and backward) are counted; figures compare only under the same
// formula. N = all parameters except a token embedding that the head does not share (it is only
// looked up), L = layers, C = width, T = sequence length.
enum class FlopsFormula : uint8_t {
  kPalm,      // 6N + 12LCT: attention counted as dense (PaLM's appendix B, nanoGPT)
  kCausal,    // 6N + 6LCT: attention as a causal kernel executes it (llm.c); 6N + 12LCT for a BERT
  kProducts,  // 6 x the elements of the matrices of blocks and head, with the padding of the
              // vocabulary: 72LC^2 + 6VC for a GPT-2
};

double flops_per_token(const ModelConfig& config, int64_t sequence, FlopsFormula formula);

}  // namespace lockstep
