#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/launch_shape.h"
#include "kernels/ops/embedding.h"

// How the kernels of embedding.cu are started, and where backward keeps what; pure.
//
// Backward sorts the rows by their token, stably and a digit at a time (least significant first;
// Knuth, The Art of Computer Programming 3, section 5.2.5), then adds the sorted rows up in parts
// of kTokenPart: whatever the tokens are, each row is read so many times.
namespace lockstep {

// Each block has a run of the rows, whose digits are first counted, then placed behind the equal
// ones of the blocks before.
inline constexpr int kTokenDigitBits = 9;
inline constexpr int kTokenDigits = 1 << kTokenDigitBits;
inline constexpr int kTokenSortThreads = 256;
struct TokenSortPlan {
  int passes = 0;            // one for each digit of the tokens 0..vocabulary
  int64_t rows_at_once = 0;  // of a block, a multiple of its threads; the last may have fewer
  LaunchShape counting_shape;
  LaunchShape placing_shape;
};
TokenSortPlan token_sort_plan(const EmbeddingTokens& tokens);

// A warp adds up the sorted rows of a part, in a strip of columns: blocks (parts, strip).
inline constexpr int kTokenPart = 32;
inline constexpr int kTokenPartWarps = 4;
int64_t token_parts(int64_t rows);
LaunchShape token_parts_shape(const EmbeddingTokens& tokens, int64_t width, int per_lane);
// A block adds up the sums of a token whose rows are in several parts: blocks (part, strip).
LaunchShape token_joins_shape(const EmbeddingTokens& tokens, int64_t width, int per_lane);

// A sorted row; tokens that are not in this shard are all `vocabulary`.
struct alignas(8) TokenRow {
  int32_t token = 0;
  int32_t row = 0;
};

// Offsets in bytes, from an address that is a multiple of 16.
struct TokenWorkspace {
  size_t sums = 0;      // float [parts][2][width]: of a part's first token and of its last one
  size_t unsorted = 0;  // TokenRow [rows], between passes
  size_t sorted = 0;    // TokenRow [rows]
  size_t counts = 0;    // int32 [blocks of the sort][kTokenDigits]
  size_t bytes = 0;
};
TokenWorkspace token_workspace(const EmbeddingTokens& tokens, int64_t width);

}  // namespace lockstep
