#include "kernels/ops/embedding.h"

#include "kernels/device/cuda/launch.cuh"
#include "kernels/device/cuda/reduce.cuh"
#include "kernels/ops/cuda_ops.h"
#include "kernels/ops/dispatch.cuh"
#include "kernels/ops/geometry.h"
#include "kernels/ops/token_sort.cuh"

namespace lockstep::kernels::cuda {

namespace {

struct Lookup {
  TokensOfShard shard;
  int64_t sequence;
  int64_t width;
};

// The tables of a lookup, of type U; null: none.
template <class U>
struct Tables {
  const U* tokens;
  const U* positions;
  const U* row;  // added to every row
};

template <int N, class U>
__device__ __forceinline__ void add_loaded(float (&sum)[N], const U* from) {
  float values[N];
  load_values(values, from);
  for (int i = 0; i < N; ++i) sum[i] += values[i];
}

// Grid: (row, strip of columns).
template <class T, class U, int N>
__global__ void __launch_bounds__(kRowStripThreads)
    look_up(Tables<U> tables, T* out, Lookup lookup) {
  const int64_t row = blockIdx.x;
  const int64_t column = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N;
  if (column >= lookup.width) return;
  const int64_t token = table_row(lookup.shard, row);
  float sum[N] = {};
  if (token >= 0) load_values(sum, tables.tokens + token * lookup.width + column);
  if (tables.positions) {
    add_loaded(sum, tables.positions + row % lookup.sequence * lookup.width + column);
  }
  if (tables.row) add_loaded(sum, tables.row + column);
  store_values(out + row * lookup.width + column, sum);
}

// The sorted rows of backward, in parts of kTokenPart.
struct SortedRows {
  const TokenRow* rows;
  int64_t count;
  int32_t vocabulary;  // the token of rows outside this shard
  float* sums;         // [parts][2][width]
  int64_t width;

  __device__ int32_t token(int64_t at) const { return load_token_row(rows + at).token; }
  // Returns the part's partial sum of a token that also has rows in other parts: of the part's
  // first token, or with of_last of its last token, if that begins in this part and continues in
  // the next.
  __device__ float* sum_of(int64_t part, bool of_last) const {
    return sums + (2 * part + (of_last ? 1 : 0)) * width;
  }
};

template <int N>
__device__ __forceinline__ void add_to(float* to, const float (&values)[N]) {
  float sums[N];
  load_values(sums, to);
  for (int i = 0; i < N; ++i) sums[i] += values[i];
  store_values(to, sums);
}

// A warp has a part and a strip of columns. It adds a token whose rows are all in this part to
// dtable, and stores the partial sum of a token that continues in an adjacent part.
template <class T, int N>
__global__ void __launch_bounds__(kTokenPartWarps* kWarpThreads)
    add_parts_of_tokens(const T* dout, float* dtable, SortedRows sorted) {
  constexpr int kAhead = 4;  // rows loaded ahead
  const int64_t part = int64_t{blockIdx.x} * kTokenPartWarps + warp_index();
  const int64_t column = (int64_t{blockIdx.y} * kWarpThreads + lane_index()) * N;
  const int64_t begin = part * kTokenPart;
  if (begin >= sorted.count || column >= sorted.width) return;
  const int64_t end = begin + kTokenPart < sorted.count ? begin + kTokenPart : sorted.count;

  int32_t token = sorted.token(begin);
  bool is_from_before = begin > 0 && sorted.token(begin - 1) == token;
  float sum[N] = {};
  const auto put = [&](bool goes_on) {
    if (token == sorted.vocabulary) return;
    if (is_from_before || goes_on) {
      store_values(sorted.sum_of(part, !is_from_before) + column, sum);
    } else {
      add_to(dtable + token * sorted.width + column, sum);
    }
  };
  for (int64_t first = begin; first < end; first += kAhead) {
    int32_t tokens[kAhead];
    float values[kAhead][N] = {};
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i >= end) break;
      const TokenRow row = load_token_row(sorted.rows + first + i);
      tokens[i] = row.token;
      if (row.token == sorted.vocabulary) continue;
      load_values(values[i], dout + row.row * sorted.width + column);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i >= end) break;
      if (tokens[i] != token) {
        put(false);
        token = tokens[i];
        is_from_before = false;
        for (float& s : sum) s = 0.0f;
      }
      for (int j = 0; j < N; ++j) sum[j] += values[i][j];
    }
  }
  put(end < sorted.count && sorted.token(end) == token);
}

// Returns how many parts from `part` on begin with the token; the part at `part` must.
__device__ __forceinline__ int64_t parts_with(const SortedRows& sorted, int64_t part,
                                              int32_t token) {
  int64_t low = part, high = (sorted.count + kTokenPart - 1) / kTokenPart;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (sorted.token(middle * kTokenPart) == token) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return high - part;
}

// For a token whose rows span several parts, the block of the part where the token begins adds the
// partial sums; the warps take them in turn.
template <int N>
__global__ void __launch_bounds__(kColumnThreads) join_parts(float* dtable, SortedRows sorted) {
  const int64_t part = blockIdx.x, begin = part * kTokenPart, end = begin + kTokenPart;
  if (end >= sorted.count) return;
  const int32_t token = sorted.token(end - 1);
  if (token == sorted.vocabulary || sorted.token(end) != token) return;
  if (begin > 0 && sorted.token(begin - 1) == token) return;
  const int64_t more = parts_with(sorted, part + 1, token);
  const int64_t column = (int64_t{blockIdx.y} * kWarpThreads + lane_index()) * N;
  float sums[1][N] = {};
  if (column < sorted.width) {
#pragma unroll 4
    for (int64_t i = warp_index(); i <= more; i += kColumnWarps) {
      float values[N];
      load_values(values, sorted.sum_of(part + i, i == 0) + column);
      for (int j = 0; j < N; ++j) sums[0][j] += values[j];
    }
  }
  join_warps(sums, shared_memory<float>(), [&](int, int i, float total) {
    const int64_t c = int64_t{blockIdx.y} * kWarpThreads * N + i;
    if (c < sorted.width) dtable[token * sorted.width + c] += total;
  });
}

// Grid: (position, strip of columns).
template <class T, int N>
__global__ void __launch_bounds__(kRowStripThreads)
    add_positions(const T* dout, float* dpositions, int64_t batch, Lookup lookup) {
  const int64_t column = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N;
  if (column >= lookup.width) return;
  float sum[N] = {};
  for (int64_t b = 0; b < batch; ++b) {
    float values[N];
    const int64_t row = b * lookup.sequence + blockIdx.x;
    load_values(values, dout + row * lookup.width + column);
    for (int i = 0; i < N; ++i) sum[i] += values[i];
  }
  float* to = dpositions + int64_t{blockIdx.x} * lookup.width + column;
  float before[N];
  load_values(before, to);
  for (int i = 0; i < N; ++i) sum[i] += before[i];
  store_values(to, sum);
}

template <class Args>
Lookup lookup_of(const Args& args) {
  CHECK(args.vocabulary < INT32_MAX);
  return {.shard = {.tokens = args.tokens,
                    .begin = args.vocabulary_begin,
                    .number = static_cast<int32_t>(args.vocabulary)},
          .sequence = args.sequence,
          .width = args.width};
}

}  // namespace

void embedding_forward(Stream& stream, const EmbeddingForward& args) {
  const Lookup lookup = lookup_of(args);
  CHECK(!args.position_table || args.position_table.dtype == args.token_table.dtype);
  CHECK(!args.row || args.row.dtype == args.token_table.dtype);
  const PackedRows rows{
      .dtype = args.out.dtype,
      .width = args.width,
      .begins = {args.token_table.data, args.position_table.data, args.row.data, args.out.data}};
  dispatch(rows, [&]<class T, int N>(Pack<T, N>) {
    const LaunchShape shape =
        row_strips_shape("embedding_forward", args.batch * args.sequence, args.width, N);
    if (args.token_table.dtype == DType::kF32) {
      const Tables<float> tables{args.token_table.f32(), args.position_table.f32(), args.row.f32()};
      launch(stream, shape, look_up<T, float, N>, tables, elements_of<T>(args.out), lookup);
    } else {
      const Tables<Bf16> tables{args.token_table.bf16(), args.position_table.bf16(),
                                args.row.bf16()};
      launch(stream, shape, look_up<T, Bf16, N>, tables, elements_of<T>(args.out), lookup);
    }
  });
}

void embedding_backward(Stream& stream, const EmbeddingBackward& args) {
  const EmbeddingTokens tokens{.rows = args.batch * args.sequence, .vocabulary = args.vocabulary};
  if (tokens.rows == 0) return;
  const Lookup lookup = lookup_of(args);
  const PackedRows rows{
      .dtype = args.dout.dtype,
      .width = args.width,
      .begins = {args.dout.data, args.dtoken_table.data, args.dposition_table.data}};
  const TokenWorkspace at = token_workspace(tokens, args.width);
  auto* workspace = static_cast<char*>(args.workspace.data);
  if (args.dtoken_table) {
    CHECK(tokens.rows <= INT32_MAX);
    CHECK(args.workspace.bytes >= at.bytes && reinterpret_cast<uintptr_t>(workspace) % 16 == 0);
    sort_rows(stream, tokens, lookup.shard, at, workspace);
  }
  dispatch(rows, [&]<class T, int N>(Pack<T, N>) {
    const T* dout = elements_of<T>(args.dout);
    if (args.dposition_table) {
      launch(stream, row_strips_shape("embedding_backward_positions", args.sequence, args.width, N),
             add_positions<T, N>, dout, args.dposition_table.f32(), args.batch, lookup);
    }
    if (!args.dtoken_table) return;
    const SortedRows sorted{.rows = reinterpret_cast<const TokenRow*>(workspace + at.sorted),
                            .count = tokens.rows,
                            .vocabulary = lookup.shard.number,
                            .sums = reinterpret_cast<float*>(workspace + at.sums),
                            .width = args.width};
    float* dtable = args.dtoken_table.f32();
    launch(stream, token_parts_shape(tokens, args.width, N), add_parts_of_tokens<T, N>, dout,
           dtable, sorted);
    launch(stream, token_joins_shape(tokens, args.width, N), join_parts<N>, dtable, sorted);
  });
}

}  // namespace lockstep::kernels::cuda
