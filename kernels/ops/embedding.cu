#include "kernels/ops/embedding.h"

#include <algorithm>

#include "kernels/device/cuda/launch.cuh"
#include "kernels/device/cuda/reduce.cuh"
#include "kernels/ops/cuda_ops.h"
#include "kernels/ops/dispatch.cuh"
#include "kernels/ops/geometry.h"

namespace lockstep::cuda {

namespace {

struct Lookup {
  const int32_t* tokens;
  int64_t sequence;
  int64_t width;
  int64_t vocabulary;
  int64_t vocabulary_begin;
};

// The token of a row as a row of the table here, or -1.
__device__ __forceinline__ int64_t table_row(const Lookup& lookup, int64_t row) {
  const int64_t token = lookup.tokens[row] - lookup.vocabulary_begin;
  return token >= 0 && token < lookup.vocabulary ? token : -1;
}

// Blocks (row, strip of columns); the tables are of type U.
template <class T, class U, int N>
__global__ void look_up(const U* table, const U* positions, T* out, Lookup lookup) {
  const int64_t row = blockIdx.x;
  const int64_t column = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N;
  if (column >= lookup.width) return;
  const int64_t token = table_row(lookup, row);
  float sum[N] = {};
  if (token >= 0) load_values(sum, table + token * lookup.width + column);
  if (positions) {
    float position[N];
    load_values(position, positions + row % lookup.sequence * lookup.width + column);
    for (int i = 0; i < N; ++i) sum[i] += position[i];
  }
  store_values(out + row * lookup.width + column, sum);
}

// Backward sorts the rows by their token, those of a token in their order.
struct Buckets {
  int32_t* begins;     // [vocabulary+1]: where a token's rows begin; at first their numbers
  int32_t* cursors;    // [vocabulary+1]
  int32_t* unordered;  // [rows]
  int32_t* ordered;    // [rows]
};

Buckets buckets_in(void* workspace, const EmbeddingTokens& tokens) {
  int32_t* begins = static_cast<int32_t*>(workspace);
  int32_t* cursors = begins + tokens.vocabulary + 1;
  int32_t* unordered = cursors + tokens.vocabulary + 1;
  return {begins, cursors, unordered, unordered + tokens.rows};
}

__device__ __forceinline__ int64_t own_index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__global__ void clear_counts(Buckets buckets, int64_t vocabulary) {
  if (own_index() <= vocabulary) buckets.begins[own_index()] = 0;
}

__global__ void count_rows(Buckets buckets, int64_t rows, Lookup lookup) {
  if (own_index() >= rows) return;
  const int64_t token = table_row(lookup, own_index());
  if (token >= 0) atomic_add(buckets.begins + token, 1);
}

// One block: numbers become begins, the last one the number of rows that have a token here. Each
// thread adds up a run of tokens, the first one then the runs.
__global__ void add_up_counts(Buckets buckets, int64_t vocabulary) {
  int32_t* runs = shared_memory<int32_t>();
  const int64_t size = vocabulary + 1, thread = threadIdx.x;
  const int64_t begin = size * thread / blockDim.x, end = size * (thread + 1) / blockDim.x;
  int32_t sum = 0;
  for (int64_t i = begin; i < end; ++i) sum += buckets.begins[i];
  runs[thread] = sum;
  sync_block();
  if (thread == 0) {
    int32_t before = 0;
    for (unsigned i = 0; i < blockDim.x; ++i) {
      const int32_t run = runs[i];
      runs[i] = before;
      before += run;
    }
  }
  sync_block();
  int32_t before = runs[thread];
  for (int64_t i = begin; i < end; ++i) {
    const int32_t count = buckets.begins[i];
    buckets.begins[i] = before;
    buckets.cursors[i] = before;
    before += count;
  }
}

// Into the buckets, in whatever order the threads come.
__global__ void place_rows(Buckets buckets, int64_t rows, Lookup lookup) {
  if (own_index() >= rows) return;
  const int64_t token = table_row(lookup, own_index());
  if (token < 0) return;
  const int32_t slot = atomic_add(buckets.cursors + token, 1);
  buckets.unordered[slot] = static_cast<int32_t>(own_index());
}

// A row's place in its bucket is the number of smaller ones there.
__global__ void order_rows(Buckets buckets, Lookup lookup) {
  if (own_index() >= buckets.begins[lookup.vocabulary]) return;
  const int32_t row = buckets.unordered[own_index()];
  const int64_t token = table_row(lookup, row);
  const int32_t begin = buckets.begins[token], end = buckets.begins[token + 1];
  int32_t smaller = 0;
  for (int32_t i = begin; i < end; ++i) smaller += buckets.unordered[i] < row ? 1 : 0;
  buckets.ordered[begin + smaller] = row;
}

// Blocks (strip of columns, token): the warps take the token's rows in turn, then their sums are
// added in their order.
template <class T, int N>
__global__ void add_tokens(const T* dout, float* dtable, Buckets buckets, int64_t width,
                           int64_t first_token) {
  constexpr int kStrip = kWarpThreads * N;
  const int64_t token = first_token + blockIdx.y;
  const int32_t begin = buckets.begins[token], end = buckets.begins[token + 1];
  if (begin == end) return;
  float* shared = shared_memory<float>();  // [warps][kStrip]
  const int64_t column = int64_t{blockIdx.x} * kStrip + lane_index() * N;
  float sum[N] = {};
  if (column < width) {
    for (int32_t i = begin + warp_index(); i < end; i += warp_count()) {
      float values[N];
      load_values(values, dout + int64_t{buckets.ordered[i]} * width + column);
      for (int j = 0; j < N; ++j) sum[j] += values[j];
    }
  }
  for (int j = 0; j < N; ++j) shared[warp_index() * kStrip + lane_index() * N + j] = sum[j];
  sync_block();
  for (int i = static_cast<int>(threadIdx.x); i < kStrip; i += static_cast<int>(blockDim.x)) {
    const int64_t c = int64_t{blockIdx.x} * kStrip + i;
    if (c >= width) continue;
    float total = 0.0f;
    for (int warp = 0; warp < warp_count(); ++warp) total += shared[warp * kStrip + i];
    dtable[token * width + c] += total;
  }
}

// Blocks (position, strip of columns).
template <class T, int N>
__global__ void add_positions(const T* dout, float* dpositions, int64_t batch, Lookup lookup) {
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

void sort_rows(Stream& stream, const Buckets& buckets, int64_t rows, const Lookup& lookup) {
  constexpr int kRuns = 1024;
  const auto each_row = [&](const char* name) { return elements_shape(name, rows, 1); };
  launch(stream, elements_shape("clear_counts", lookup.vocabulary + 1, 1), clear_counts, buckets,
         lookup.vocabulary);
  launch(stream, each_row("count_rows"), count_rows, buckets, rows, lookup);
  launch(stream,
         {.name = "add_up_counts", .threads = kRuns, .shared_bytes = kRuns * sizeof(int32_t)},
         add_up_counts, buckets, lookup.vocabulary);
  launch(stream, each_row("place_rows"), place_rows, buckets, rows, lookup);
  launch(stream, each_row("order_rows"), order_rows, buckets, lookup);
}

}  // namespace

void embedding_forward(Stream& stream, const EmbeddingForward& args) {
  const Lookup lookup{.tokens = args.tokens,
                      .sequence = args.sequence,
                      .width = args.width,
                      .vocabulary = args.vocabulary,
                      .vocabulary_begin = args.vocabulary_begin};
  CHECK(!args.position_table || args.position_table.dtype == args.token_table.dtype);
  const PackedRows rows{.dtype = args.out.dtype,
                        .width = args.width,
                        .begins = {args.token_table.data, args.position_table.data, args.out.data}};
  dispatch(rows, [&]<class T, int N>(Pack<T, N>) {
    const LaunchShape shape =
        row_strips_shape("embedding_forward", args.batch * args.sequence, args.width, N);
    if (args.token_table.dtype == DType::kF32) {
      launch(stream, shape, look_up<T, float, N>, args.token_table.f32(), args.position_table.f32(),
             elements_of<T>(args.out), lookup);
    } else {
      launch(stream, shape, look_up<T, Bf16, N>, args.token_table.bf16(),
             args.position_table.bf16(), elements_of<T>(args.out), lookup);
    }
  });
}

void embedding_backward(Stream& stream, const EmbeddingBackward& args) {
  const EmbeddingTokens tokens{.rows = args.batch * args.sequence, .vocabulary = args.vocabulary};
  if (tokens.rows == 0) return;
  const Lookup lookup{.tokens = args.tokens,
                      .sequence = args.sequence,
                      .width = args.width,
                      .vocabulary = args.vocabulary,
                      .vocabulary_begin = args.vocabulary_begin};
  const PackedRows rows{
      .dtype = args.dout.dtype,
      .width = args.width,
      .begins = {args.dout.data, args.dtoken_table.data, args.dposition_table.data}};
  const Buckets buckets = buckets_in(args.workspace.data, tokens);
  if (args.dtoken_table) {
    CHECK(tokens.rows <= INT32_MAX);
    CHECK(args.workspace.bytes >= embedding_backward_workspace(tokens, DeviceType::kCuda));
    sort_rows(stream, buckets, tokens.rows, lookup);
  }
  dispatch(rows, [&]<class T, int N>(Pack<T, N>) {
    const T* dout = elements_of<T>(args.dout);
    if (args.dposition_table) {
      launch(stream, row_strips_shape("embedding_backward_positions", args.sequence, args.width, N),
             add_positions<T, N>, dout, args.dposition_table.f32(), args.batch, lookup);
    }
    if (!args.dtoken_table) return;
    for (int64_t first = 0; first < args.vocabulary; first += kBlocksMax.y) {
      const int64_t count = std::min(args.vocabulary - first, kBlocksMax.y);
      launch(stream, column_sums_shape("embedding_backward_tokens", args.width, count, N, 1),
             add_tokens<T, N>, dout, args.dtoken_table.f32(), buckets, args.width, first);
    }
  });
}

}  // namespace lockstep::cuda
