#pragma once

#include <cstdint>

#include "common/layout/activations.h"
#include "common/layout/model_config.h"

namespace lockstep {

// What "FLOPs of a token" (forward and backward) counts; figures compare only under one formula.
// N = all parameters but a token embedding that the head doesn't share (it is only looked up in), L
// layers, C width, T sequence.
enum class FlopsFormula : uint8_t {
  kPalm,      // 6N + 12LCT: attention counted dense (PaLM's appendix B, nanoGPT)
  kCausal,    // 6N + 6LCT: attention as a causal kernel executes it (llm.c)
  kProducts,  // 6 x the elements of the matrices of blocks and head, the vocabulary's padding
              // included: 72LC^2 + 6VC of a GPT-2
};

double flops_per_token(const ModelConfig& config, int64_t sequence, FlopsFormula formula);

// One rank's share of a layout.
struct MemoryRequest {
  Stage stage;
  TensorShard shard;
  ActivationShape shape;
  ActivationOptions options = {};
  int64_t micro_batches_in_flight = 1;
  bool bf16_copy = false;  // of the weights, for the products
};

// Bytes of the arenas that the worker allocates, exactly; the ops' workspaces come on top.
struct MemoryPlan {
  int64_t weights = 0;
  int64_t weight_copies = 0;
  int64_t gradients = 0;
  int64_t optimizer = 0;  // two moments
  int64_t activations = 0;
  int64_t scratch = 0;

  int64_t total() const {
    return weights + weight_copies + gradients + optimizer + activations + scratch;
  }
};

MemoryPlan memory_plan(const ModelConfig& config, const MemoryRequest& request);

}  // namespace lockstep
