#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/device.h"

namespace lockstep::kernels {

// out[b,t] = token_table[tokens[b,t] - vocabulary_begin] + position_table[t] + row.
// A token outside this shard [vocabulary_begin, + vocabulary) gives a row of zeros, so the sum over
// a table's shards is the complete lookup. Pass position_table and row on only one of the shards.
struct EmbeddingForward {
  const int32_t* tokens = nullptr;  // [B,T]
  ConstView token_table = {};       // [vocabulary, C]
  ConstView position_table = {};    // [>=T, C] or null
  ConstView row = {};               // [C] or null; its gradient is the sum of dout's rows
  View out = {};                    // [B,T,C]
  int64_t batch = 0;
  int64_t sequence = 0;
  int64_t width = 0;
  int64_t vocabulary = 0;
  int64_t vocabulary_begin = 0;
};

// dtoken_table[token] += dout, dposition_table[t] += sum over b of dout, in an order that depends
// only on the tokens. On the CPU the order is that of (b,t).
//
// On CUDA, rows are sorted by token, stably in the order of (b,t). Rows of a token within each
// group of 32 sorted rows are added in turn. If the token's rows span several groups, every eighth
// group sum is added up, then these eight sums. The cost does not depend on how often a token
// occurs: for each 9 bits of the vocabulary size the sort reads a row's 8 bytes twice and writes
// them once; then dout is read once.
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

// Returns the bytes needed; 0 on the CPU. On CUDA (aligned to 16 bytes) it is C/4 bytes per row for
// partial sums, and for the sort 16 bytes per row and at most 128 KiB.
size_t embedding_backward_workspace(const EmbeddingTokens& tokens, int64_t width,
                                    DeviceType device);

}  // namespace lockstep::kernels
