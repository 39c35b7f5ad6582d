#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/launch_shape.h"
#include "kernels/ops/embedding.h"

// Launch shapes of the kernels in embedding.cu, and the workspace layout of backward; pure.
//
// Backward sorts the rows by token, stably, one digit at a time (least significant first; Knuth,
// The Art of Computer Programming 3, section 5.2.5). Then it adds up the sorted rows in parts of
// kTokenPart. Each row is read the same number of times, whatever the tokens are.
namespace lockstep::kernels {

// Each block has a run of rows. It first counts their digits, then places the rows after those with
// equal digits of the blocks before it.
inline constexpr int kTokenDigitBits = 9;
inline constexpr int kTokenDigits = 1 << kTokenDigitBits;
inline constexpr int kTokenSortThreads = 256;
struct TokenSortPlan {
  int passes = 0;            // one per digit of the tokens 0..vocabulary
  int64_t rows_at_once = 0;  // rows per block, a multiple of its threads; the last block may have
                             // fewer
  LaunchShape counting_shape;
  LaunchShape placing_shape;
};
TokenSortPlan token_sort_plan(const EmbeddingTokens& tokens);

// A warp adds up the sorted rows of a part, in a strip of columns. Grid: (parts, strip).
inline constexpr int kTokenPart = 32;
inline constexpr int kTokenPartWarps = 4;
int64_t token_parts(int64_t rows);
LaunchShape token_parts_shape(const EmbeddingTokens& tokens, int64_t width, int per_lane);
// A block adds up the sums of a token whose rows span several parts. Grid: (part, strip).
LaunchShape token_joins_shape(const EmbeddingTokens& tokens, int64_t width, int per_lane);

// A sorted row; a token outside this shard has the value `vocabulary`.
struct alignas(8) TokenRow {
  int32_t token = 0;
  int32_t row = 0;
};

// Byte offsets from an address that is a multiple of 16.
struct TokenWorkspace {
  size_t sums = 0;      // float [parts][2][width]: for each part, its first and its last token
  size_t unsorted = 0;  // TokenRow [rows], between passes
  size_t sorted = 0;    // TokenRow [rows]
  size_t counts = 0;    // int32 [sort blocks][kTokenDigits]
  size_t bytes = 0;
};
TokenWorkspace token_workspace(const EmbeddingTokens& tokens, int64_t width);

}  // namespace lockstep::kernels
