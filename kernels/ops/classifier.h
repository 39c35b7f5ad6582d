#pragma once

#include <cstdint>

#include "kernels/device/device.h"

namespace lockstep {

// Softmax cross-entropy over a vocabulary of `vocabulary` tokens. A rank holds the columns
// [column_begin, column_begin + columns) of the logits; those at or past `vocabulary` are padding,
// count as probability 0 and get gradient 0.
// A target below 0 means "do not count": loss 0, gradient 0.
struct ClassifierShape {
  int64_t rows = 0;        // B*T
  int64_t columns = 0;     // of this shard = the row stride
  int64_t vocabulary = 0;  // of all shards together, without padding
  int64_t column_begin = 0;
};

// The whole of it, for an unsharded vocabulary:
// losses[r] = ln(sum exp(logits[r])) - logits[r, target]; with gradient,
// logits[r,v] <- (softmax(logits[r])[v] - [v == target]) * gradient_scale, in place.
struct Classifier {
  View logits = {};                  // [R,V]: overwritten if gradient, else left as they are
  const int32_t* targets = nullptr;  // [R]
  float* losses = nullptr;           // [R]
  ClassifierShape shape = {};
  bool gradient = true;
  float gradient_scale = 1.0f;
};

// The same in three passes, between which the ranks that share the vocabulary reduce:
//   classifier_max -> all-reduce MAX of maxima -> classifier_sum -> all-reduce SUM of sums and
//   target_logits -> classifier_finish.

// maxima[r] = max over the columns here (lowest float if all are padding).
struct ClassifierMax {
  ConstView logits = {};    // [R,columns]
  float* maxima = nullptr;  // [R]
  ClassifierShape shape = {};
};

// logits[r,v] <- exp(logits[r,v] - maxima[r]), in place; sums[r] = their sum here;
// target_logits[r] = logits[r,target] - maxima[r] if the target's column is here, else 0.
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

}  // namespace lockstep
