#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/device.h"

namespace lockstep::kernels {

// tokens[r] = a sample from softmax(logits[r] / temperature) over the top_k largest logits: the
// first token whose cumulative probability exceeds uniforms[r]. Temperature 0 gives the largest
// logit (the first of equal ones).
struct Sample {
  ConstView logits = {};            // [R, stride]; columns past vocabulary are ignored
  const float* uniforms = nullptr;  // [R], in [0,1), from the caller's generator
  int32_t* tokens = nullptr;        // [R]
  int64_t rows = 0;
  int64_t vocabulary = 0;
  int64_t stride = 0;
  float temperature = 1.0f;
  int64_t top_k = 0;         // 0: all
  Workspace workspace = {};  // sample_workspace(vocabulary)
};

size_t sample_workspace(int64_t vocabulary);

}  // namespace lockstep::kernels
