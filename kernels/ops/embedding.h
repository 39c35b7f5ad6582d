#pragma once

#include <cstddef>
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

// dtoken_table[token] += dout, dposition_table[t] += sum over b of dout, in an order that the
// tokens alone fix: on the CPU that of (b,t), on CUDA sums of every eighth row of a token in that
// order.
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
  Workspace workspace = {};  // embedding_backward_workspace({B*T, vocabulary}, device type)
};

struct EmbeddingTokens {
  int64_t rows = 0;  // B*T, below 2^31 on CUDA
  int64_t vocabulary = 0;
};

// On CUDA the rows are sorted by token first: two integers each for rows and tokens.
constexpr size_t embedding_backward_workspace(const EmbeddingTokens& tokens, DeviceType device) {
  const int64_t integers = 2 * (tokens.rows + tokens.vocabulary + 1);
  return device == DeviceType::kCpu ? 0 : static_cast<size_t>(integers) * sizeof(int32_t);
}

}  // namespace lockstep
