#pragma once

#include <cstdint>

#include "common/layout/activations.h"
#include "common/layout/model_config.h"

namespace lockstep {

// How the FLOPs of a token (forward and backward) are counted; figures compare only under the same
// formula. N = all parameters except a token embedding that the head does not share (it is only
// looked up), L = layers, C = width, T = sequence length.
enum class FlopsFormula : uint8_t {
  kPalm,      // 6N + 12LCT: attention counted as dense (PaLM's appendix B, nanoGPT)
  kCausal,    // 6N + 6LCT: attention as a causal kernel executes it (llm.c)
  kProducts,  // 6 x the elements of the matrices of blocks and head, with the padding of the
              // vocabulary: 72LC^2 + 6VC for a GPT-2
};

double flops_per_token(const ModelConfig& config, int64_t sequence, FlopsFormula formula);

// One rank's share of the model under a layout.
struct MemoryRequest {
  Stage stage;
  TensorShard shard;
  ActivationShape shape;
  ActivationOptions options = {};
  int64_t micro_batches_in_flight = 1;
  bool bf16_copy = false;  // keep a bf16 copy of the weights for the matrix products
};

// Exact bytes of the arenas that the worker allocates. The workspaces of the ops come on top.
struct MemoryPlan {
  int64_t weights = 0;
  int64_t weight_copies = 0;
  int64_t gradients = 0;
  int64_t optimizer = 0;  // the two moments of Adam
  int64_t activations = 0;
  int64_t scratch = 0;

  int64_t total() const {
    return weights + weight_copies + gradients + optimizer + activations + scratch;
  }
};

MemoryPlan memory_plan(const ModelConfig& config, const MemoryRequest& request);

}  // namespace lockstep
