#pragma once

#include <cstdint>

#include "kernels/device/device.h"

namespace lockstep::kernels {

// Softmax cross-entropy over `vocabulary` tokens. A rank holds columns [column_begin, column_begin
// + columns) of the logits. Columns at or past `vocabulary` are padding: their probability and
// gradient are 0. A target below 0 is ignored: loss 0, gradient 0.
struct ClassifierShape {
  int64_t rows = 0;        // B*T
  int64_t columns = 0;     // of this shard; also the row stride
  int64_t vocabulary = 0;  // of all shards together, without padding
  int64_t column_begin = 0;
};

// The complete operation, for an unsharded vocabulary:
// losses[r] = ln(sum exp(logits[r])) - logits[r, target]; with gradient,
// logits[r,v] <- (softmax(logits[r])[v] - [v == target]) * gradient_scale, in-place.
struct Classifier {
  View logits = {};                  // [R,V]: overwritten if gradient, else unchanged
  const int32_t* targets = nullptr;  // [R]
  float* losses = nullptr;           // [R]
  ClassifierShape shape = {};
  bool gradient = true;
  float gradient_scale = 1.0f;
};

// hits[r] = 1 if the target's logit is among the `top` largest of its row, else 0. The first of
// equal logits counts as larger. For an unsharded vocabulary.
struct ClassifierHits {
  ConstView logits = {};             // [R,V]
  const int32_t* targets = nullptr;  // [R]
  float* hits = nullptr;             // [R]
  ClassifierShape shape = {};
  int64_t top = 1;
};

// Classifier in three passes; between them the ranks that share the vocabulary reduce:
// classifier_max -> all-reduce MAX of maxima -> classifier_sum -> all-reduce SUM of sums and
// target_logits -> classifier_finish.

// maxima[r] = max over this shard's columns (lowest float if all are padding).
struct ClassifierMax {
  ConstView logits = {};    // [R,columns]
  float* maxima = nullptr;  // [R]
  ClassifierShape shape = {};
};

// logits[r,v] <- exp(logits[r,v] - maxima[r]), in-place; sums[r] = their sum over this shard;
// target_logits[r] = logits[r,target] - maxima[r] if this shard has the target's column, else 0.
struct ClassifierSum {
  View logits = {};                  // [R,columns]
  const int32_t* targets = nullptr;  // [R]
  const float* maxima = nullptr;     // [R], of all shards
  float* sums = nullptr;             // [R]
  float* target_logits = nullptr;    // [R]
  ClassifierShape shape = {};
};

// losses[r] = ln(sums[r]) - target_logits[r]; with gradient, logits (which hold the exponentials)
// <- (exponential / sums[r] - [v == target]) * gradient_scale.
struct ClassifierFinish {
  View logits = {};                      // [R,columns]
  const int32_t* targets = nullptr;      // [R]
  const float* sums = nullptr;           // [R], of all shards
  const float* target_logits = nullptr;  // [R], of all shards
  float* losses = nullptr;               // [R]
  ClassifierShape shape = {};
  bool gradient = true;
  float gradient_scale = 1.0f;
};

}  // namespace lockstep::kernels
