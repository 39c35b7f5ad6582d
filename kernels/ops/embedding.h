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
// tokens alone fix. On the CPU that of (b,t). On CUDA the rows are sorted by their token, in the
// order of (b,t); the rows of a token within each 32 of the sorted ones are added in turn, then,
// where it has rows in several of these, every eighth sum, and these eight. The work there does not
// depend on how often a token comes: for each 9 bits of the vocabulary's number the sort reads a
// row's 8 bytes twice and writes them once; then dout is read once.
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
  Workspace workspace = {};  // embedding_backward_workspace({B*T, vocabulary}, C, device type)
};

struct EmbeddingTokens {
  int64_t rows = 0;        // B*T, below 2^31 on CUDA
  int64_t vocabulary = 0;  // below 2^31 on CUDA
};

// On CUDA, aligned to 16 bytes: C/4 bytes a row of partial sums, and for the sort 16 a row and at
// most 128 KiB.
size_t embedding_backward_workspace(const EmbeddingTokens& tokens, int64_t width,
                                    DeviceType device);

}  // namespace lockstep
