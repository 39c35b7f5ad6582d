#pragma once

#include <cstdint>

#include "kernels/device/device.h"

namespace lockstep {

// out[b,t] = token_table[tokens[b,t] - vocabulary_begin] + position_table[t].
// A token outside this shard [vocabulary_begin, + vocabulary) counts as a row of zeros, so that the
// sum over the shards of a table is the whole lookup; give position_table on one of them only.
struct EmbeddingForward {
  const int32_t* tokens = nullptr;  // [B,T]
  ConstView token_table = {};       // [vocabulary, C]
  ConstView position_table = {};    // [>=T, C] or null
  View out = {};                    // [B,T,C]
  int64_t batch = 0;
  int64_t sequence = 0;
  int64_t width = 0;
  int64_t vocabulary = 0;
  int64_t vocabulary_begin = 0;
};

// dtoken_table[token] += dout, dposition_table[t] += sum over b of dout, in the fixed order of
// (b,t).
struct EmbeddingBackward {
  const int32_t* tokens = nullptr;  // [B,T]
  ConstView dout = {};              // [B,T,C]
  View dtoken_table = {};           // [vocabulary, C], added to; or null
  View dposition_table = {};        // [>=T, C], added to; or null
  int64_t batch = 0;
  int64_t sequence = 0;
  int64_t width = 0;
  int64_t vocabulary = 0;
  int64_t vocabulary_begin = 0;
};

}  // namespace lockstep
