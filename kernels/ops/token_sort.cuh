#pragma once

#include "kernels/device/cuda/launch.cuh"
#include "kernels/device/cuda/reduce.cuh"
#include "kernels/ops/embedding_geometry.h"

// Sorts the rows of a batch by token, stably. The result is deterministic, and the work does not
// depend on the tokens.
namespace lockstep::kernels::cuda {

struct TokensOfShard {
  const int32_t* tokens;
  int64_t begin;   // first token of the shard
  int32_t number;  // token count of the shard
};

__device__ __forceinline__ TokenRow load_token_row(const TokenRow* from) {
  const Words2 words = load_8_bytes(from);
  return {static_cast<int32_t>(words.word[0]), static_cast<int32_t>(words.word[1])};
}
__device__ __forceinline__ void store_token_row(TokenRow* to, const TokenRow& value) {
  store_8_bytes(to, {{static_cast<uint32_t>(value.token), static_cast<uint32_t>(value.row)}});
}

// Returns the table row of a row's token in this shard, or -1.
__device__ __forceinline__ int64_t table_row(const TokensOfShard& shard, int64_t row) {
  const int64_t token = shard.tokens[row] - shard.begin;
  return token >= 0 && token < shard.number ? token : -1;
}

struct SortPass {
  TokensOfShard shard;
  const TokenRow* in;  // [rows]; null in the first pass, which reads the tokens in order
  TokenRow* out;       // [rows]
  int32_t* counts;     // [blocks][kTokenDigits]
  int64_t rows;
  int64_t rows_at_once;
  int shift;  // lowest bit of the digit
};

__device__ __forceinline__ TokenRow row_of_pass(const SortPass& pass, int64_t i) {
  if (pass.in != nullptr) return load_token_row(pass.in + i);
  const int64_t token = table_row(pass.shard, i);
  return {token < 0 ? pass.shard.number : static_cast<int32_t>(token), static_cast<int32_t>(i)};
}

__device__ __forceinline__ int digit_of(const SortPass& pass, const TokenRow& row) {
  return row.token >> pass.shift & (kTokenDigits - 1);
}

// Returns the participating lanes with the same digit. The result is meaningless for lanes that do
// not participate.
__device__ __forceinline__ uint32_t lanes_with_digit(int digit, bool takes_part) {
  uint32_t lanes = ballot(takes_part);
#pragma unroll
  for (int bit = 0; bit < kTokenDigitBits; ++bit) {
    const bool is_set = (digit >> bit & 1) != 0;
    const uint32_t set = ballot(is_set);
    lanes &= is_set ? set : ~set;
  }
  return lanes;
}

// Calls body(row, digit, lanes with the same digit, whether there is a row) in all threads, for
// each tile of the block's rows.
template <class Body>
__device__ __forceinline__ void for_tiles(const SortPass& pass, Body body) {
  const int64_t begin = int64_t{blockIdx.x} * pass.rows_at_once;
  const int64_t end = begin + pass.rows_at_once < pass.rows ? begin + pass.rows_at_once : pass.rows;
  for (int64_t tile = begin; tile < end; tile += kTokenSortThreads) {
    const int64_t i = tile + threadIdx.x;
    const bool is_row = i < end;
    const TokenRow row = is_row ? row_of_pass(pass, i) : TokenRow{};
    const int digit = digit_of(pass, row);
    body(row, digit, lanes_with_digit(digit, is_row), is_row);
  }
}

__device__ __forceinline__ uint32_t lanes_before() {
  return (1u << lane_index()) - 1;
}

// Computes counts[block][digit]. Integer sums do not depend on the order of the additions.
static __global__ void __launch_bounds__(kTokenSortThreads) count_digits(SortPass pass) {
  int32_t* counts = shared_memory<int32_t>();
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < kTokenDigits; i += kTokenSortThreads) counts[i] = 0;
  sync_block();
  for_tiles(pass, [&](const TokenRow&, int digit, uint32_t lanes, bool is_row) {
    const bool is_first = (lanes & lanes_before()) == 0;
    if (is_row && is_first) atomic_add(counts + digit, count_bits(lanes));
  });
  sync_block();
  int32_t* to = pass.counts + int64_t{blockIdx.x} * kTokenDigits;
  for (int i = thread; i < kTokenDigits; i += kTokenSortThreads) to[i] = counts[i];
}

// Sets next[digit] to the position of this block's first row with the digit: after all rows with
// lower digits, and after rows with this digit of earlier blocks. Each thread handles adjacent
// digits; `warps` has room for one integer per warp.
__device__ __forceinline__ void find_places(const SortPass& pass, int32_t* next, int32_t* warps) {
  constexpr int kOwn = kTokenDigits / kTokenSortThreads;
  static_assert(kOwn * kTokenSortThreads == kTokenDigits);
  const int first = static_cast<int>(threadIdx.x) * kOwn;
  int32_t before[kOwn] = {}, all[kOwn] = {};
  for (unsigned block = 0; block < gridDim.x; ++block) {
    for (int i = 0; i < kOwn; ++i) {
      const int32_t count = pass.counts[int64_t{block} * kTokenDigits + first + i];
      if (block < blockIdx.x) before[i] += count;
      all[i] += count;
    }
  }
  int32_t own = 0;
  for (int i = 0; i < kOwn; ++i) own += all[i];
  const int32_t through = add_lanes_before(own) + own;
  if (lane_index() == kWarpThreads - 1) warps[warp_index()] = through;
  sync_block();
  int32_t lower = through - own;
  for (int warp = 0; warp < warp_index(); ++warp) lower += warps[warp];
  for (int i = 0; i < kOwn; ++i) {
    next[first + i] = lower + before[i];
    lower += all[i];
  }
  sync_block();
}

// Places each row after those with the same digit in earlier tiles, warps and lanes.
static __global__ void __launch_bounds__(kTokenSortThreads) place_rows(SortPass pass) {
  constexpr int kWarps = kTokenSortThreads / kWarpThreads;
  int32_t* next = shared_memory<int32_t>();
  int32_t* places = next + kTokenDigits;  // [warps][kTokenDigits]: the warps' counts, then
                                          // positions
  int32_t* own = places + warp_index() * kTokenDigits;
  find_places(pass, next, places + kWarps * kTokenDigits);
  for_tiles(pass, [&](const TokenRow& row, int digit, uint32_t lanes, bool is_row) {
    const int rank = count_bits(lanes & lanes_before());
    for (int i = lane_index(); i < kTokenDigits; i += kWarpThreads) own[i] = 0;
    sync_warp();
    if (is_row && rank == 0) own[digit] = count_bits(lanes);
    sync_block();
    for (int i = static_cast<int>(threadIdx.x); i < kTokenDigits; i += kTokenSortThreads) {
      int32_t place = next[i];
      for (int warp = 0; warp < kWarps; ++warp) {
        const int32_t count = places[warp * kTokenDigits + i];
        places[warp * kTokenDigits + i] = place;
        place += count;
      }
      next[i] = place;
    }
    sync_block();
    if (is_row) store_token_row(pass.out + own[digit] + rank, row);
    sync_warp();
  });
}

// Leaves the sorted rows in the workspace's `sorted`.
inline void sort_rows(Stream& stream, const EmbeddingTokens& tokens, const TokensOfShard& shard,
                      const TokenWorkspace& at, char* workspace) {
  const TokenSortPlan plan = token_sort_plan(tokens);
  auto* sorted = reinterpret_cast<TokenRow*>(workspace + at.sorted);
  auto* unsorted = reinterpret_cast<TokenRow*>(workspace + at.unsorted);
  SortPass pass{.shard = shard,
                .in = nullptr,
                .out = nullptr,
                .counts = reinterpret_cast<int32_t*>(workspace + at.counts),
                .rows = tokens.rows,
                .rows_at_once = plan.rows_at_once,
                .shift = 0};
  for (int left = plan.passes; left > 0; --left, pass.shift += kTokenDigitBits) {
    pass.out = left % 2 == 1 ? sorted : unsorted;
    launch(stream, plan.counting_shape, count_digits, pass);
    launch(stream, plan.placing_shape, place_rows, pass);
    pass.in = pass.out;
  }
}

}  // namespace lockstep::kernels::cuda
