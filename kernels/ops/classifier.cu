#include "kernels/ops/classifier.h"

#include "kernels/device/cuda/launch.cuh"
#include "kernels/device/cuda/reduce.cuh"
#include "kernels/ops/cuda_ops.h"
#include "kernels/ops/dispatch.cuh"
#include "kernels/ops/geometry.h"

namespace lockstep::kernels::cuda {

namespace {

constexpr float kLowest = -3.402823466e38f;
constexpr float kLowestScaled = -1.7e38f;  // its product with log2(e) is finite

// The part of ClassifierShape that the kernels need; one row per block.
struct Columns {
  int64_t count;  // of this shard
  int64_t live;   // leading columns of the shard that are not padding
  int64_t begin;  // the shard's first column
};

Columns columns_of(const ClassifierShape& shape) {
  const int64_t live = shape.vocabulary - shape.column_begin;
  return {.count = shape.columns,
          .live = live < 0               ? 0
                  : live < shape.columns ? live
                                         : shape.columns,
          .begin = shape.column_begin};
}

struct ColumnRange {
  int64_t begin;  // a multiple of what the block's threads take at once
  int64_t end;
};

// Calls body(column) for this thread's columns, N at a time.
template <int N, class Body>
__device__ __forceinline__ void for_columns(const ColumnRange& range, Body body) {
  const int64_t step = int64_t{blockDim.x} * N;
  for (int64_t column = range.begin + int64_t{threadIdx.x} * N; column < range.end;
       column += step) {
    body(column);
  }
}
template <int N, class Body>
__device__ __forceinline__ void for_columns(int64_t count, Body body) {
  for_columns<N>(ColumnRange{0, count}, body);
}

// e^(x - highest), for a `highest` of at least x: fewer instructions for bf16.
template <class T>
struct ExpBelow {
  float highest;
  float shift;
  __device__ __forceinline__ explicit ExpBelow(float of) : highest(of), shift(of * kLog2E) {}
  __device__ __forceinline__ float operator()(float x) const {
    if constexpr (sizeof(T) == sizeof(float)) {
      return exp_for<T>(x - highest);
    } else {
      return fast_exp2(fmaf(x, kLog2E, -shift));
    }
  }
};

// A maximum, and the sum of the exponentials relative to it.
struct MaxAndSum {
  float highest;
  float sum;
};
__device__ __forceinline__ MaxAndSum shuffle_xor(const MaxAndSum& value, int mask) {
  return {cuda::shuffle_xor(value.highest, mask), cuda::shuffle_xor(value.sum, mask)};
}
template <class T>
struct Join {
  __device__ MaxAndSum operator()(const MaxAndSum& a, const MaxAndSum& b) const {
    const float highest = fmaxf(a.highest, b.highest);
    return {highest,
            a.sum * exp_for<T>(a.highest - highest) + b.sum * exp_for<T>(b.highest - highest)};
  }
};

// Adds the columns of the range to `own`; those from `live` on do not count.
template <class T, int N>
__device__ __forceinline__ void add_columns(MaxAndSum& own, const T* row, const ColumnRange& range,
                                            int64_t live) {
  constexpr float kNothing = -INFINITY;
  for_columns<N>(range, [&](int64_t column) {
    float values[N];
    load_values(values, row + column);
    if (column + N > live) {
      for (int i = 0; i < N; ++i) values[i] = column + i < live ? values[i] : kNothing;
    }
    float highest = own.highest;
    for (const float value : values) highest = fmaxf(highest, value);
    if (highest > own.highest) own.sum *= exp_for<T>(own.highest - highest);
    own.highest = highest;
    const ExpBelow<T> exp_below(highest);
    for (const float value : values) own.sum += exp_below(value);
  });
}

struct Gradient {
  float factor;    // multiplies each column's value
  float scale;     // subtracted from the target's column
  int64_t target;  // column in this shard; may be outside it
};

// row <- value_of(from) * factor, minus the scale at the target, 0 in padding. Factor 0 sets the
// whole row to 0.
template <class T, int N, class ValueOf>
__device__ __forceinline__ void write_gradient(T* row, const T* from, const Columns& columns,
                                               const Gradient& g, ValueOf value_of) {
  const int64_t live = g.factor != 0.0f ? columns.live : 0;
  for_columns<N>(columns.count, [&](int64_t column) {
    float values[N];
    load_values(values, from + column);
    for (float& value : values) value = value_of(value) * g.factor;
    if (g.target >= column && g.target < column + N) {
      for (int i = 0; i < N; ++i) {
        if (column + i == g.target) values[i] -= g.scale;
      }
    }
    if (column + N > live) {
      for (int i = 0; i < N; ++i) values[i] = column + i < live ? values[i] : 0.0f;
    }
    store_values(row + column, values);
  });
}

// Begins to copy the columns of a row to shared memory. Afterwards each thread may read its own
// columns there, those of for_columns<N>.
template <class T, int N>
__device__ __forceinline__ void begin_keeping(T* kept, const T* row, const ColumnRange& range) {
  static_assert(sizeof(T) * N == 16);
  for_columns<N>(range, [&](int64_t column) { begin_copy_16_bytes(kept + column, row + column); });
  commit_copies();
}

// Copies a row to shared memory, and meanwhile returns its maximum and sum.
template <class T, int N>
__device__ __forceinline__ MaxAndSum keep_row(T* kept, const T* row, const Columns& columns) {
  const int64_t turn = int64_t{blockDim.x} * N;
  const int64_t half = columns.count / 2 / turn * turn;
  begin_keeping<T, N>(kept, row, {0, half});
  begin_keeping<T, N>(kept, row, {half, columns.count});
  MaxAndSum own{kLowestScaled, 0.0f};
  wait_for_copies<1>();
  add_columns<T, N>(own, kept, {0, half < columns.live ? half : columns.live}, columns.live);
  wait_for_copies<0>();
  add_columns<T, N>(own, kept, {half, columns.live}, columns.live);
  return own;
}

// A target past the vocabulary is a bug of the caller; its loss is NaN. kKeeps: reads the logits
// from memory once; shared memory has room for a row, which follows what the reduction needs.
template <class T, int N, bool kKeeps>
__global__ void __launch_bounds__(kBlockRowThreads)
    classify(T* logits, const int32_t* targets, float* losses, Columns columns, bool gradient,
             float scale) {
  T* row = logits + int64_t{blockIdx.x} * columns.count;
  auto* of_warps = shared_memory<MaxAndSum>();
  const T* from = row;
  MaxAndSum own{kLowestScaled, 0.0f};
  if constexpr (kKeeps) {
    T* kept = reinterpret_cast<T*>(of_warps + kBlockRowThreads / kWarpThreads);
    own = keep_row<T, N>(kept, row, columns);
    from = kept;
  } else {
    add_columns<T, N>(own, row, {0, columns.live}, columns.live);
  }
  const int64_t target = targets[blockIdx.x];
  const bool counted = target >= 0, known = target < columns.live;
  // Read before another thread overwrites it.
  const float target_logit = counted && known ? to_float(row[target]) : 0.0f;
  const MaxAndSum all = reduce_block(own, Join<T>{}, of_warps);
  if (threadIdx.x == 0) {
    const float loss = logf(all.sum) - (target_logit - all.highest);
    losses[blockIdx.x] = !counted ? 0.0f : known ? loss : float_of_bits(0x7FC00000u);
  }
  if (!gradient) return;
  const Gradient g{.factor = counted ? scale / all.sum : 0.0f, .scale = scale, .target = target};
  write_gradient<T, N>(row, from, columns, g, ExpBelow<T>(all.highest));
}

// Counts the columns that beat the target's: their logit is larger, or as large and before it.
template <class T>
__global__ void __launch_bounds__(kBlockRowThreads)
    find_hits(const T* logits, const int32_t* targets, float* hits, Columns columns, float top) {
  const T* row = logits + int64_t{blockIdx.x} * columns.count;
  const int64_t target = targets[blockIdx.x];
  const bool known = target >= 0 && target < columns.live;
  const float of_target = known ? to_float(row[target]) : 0.0f;
  float beaten = 0.0f;  // counts are exact
  for (int64_t column = threadIdx.x; column < columns.live; column += blockDim.x) {
    const float value = to_float(row[column]);
    if (value > of_target || (value == of_target && column < target)) beaten += 1.0f;
  }
  beaten = reduce_block(beaten, Plus{}, shared_memory<float>());
  const bool right = known && of_target == of_target && beaten < top;  // NaN is not right
  if (threadIdx.x == 0) hits[blockIdx.x] = right ? 1.0f : 0.0f;
}

template <class T, int N>
__global__ void __launch_bounds__(kBlockRowThreads)
    find_maxima(const T* logits, float* maxima, Columns columns) {
  const T* row = logits + int64_t{blockIdx.x} * columns.count;
  float highest = kLowest;
  for_columns<N>(columns.live, [&](int64_t column) {
    float values[N];
    load_values(values, row + column);
    for (int i = 0; i < N; ++i) {
      if (column + i < columns.live) highest = fmaxf(highest, values[i]);
    }
  });
  highest = reduce_block(highest, Larger{}, shared_memory<float>());
  if (threadIdx.x == 0) maxima[blockIdx.x] = highest;
}

template <class T, int N>
__global__ void __launch_bounds__(kBlockRowThreads)
    sum_exponentials(T* logits, const int32_t* targets, const float* maxima, float* sums,
                     float* target_logits, Columns columns) {
  T* row = logits + int64_t{blockIdx.x} * columns.count;
  const int64_t target = targets[blockIdx.x] - columns.begin;
  const bool here = targets[blockIdx.x] >= 0 && target >= 0 && target < columns.live;
  const float highest = maxima[blockIdx.x];
  // Read before another thread overwrites it.
  if (threadIdx.x == 0) target_logits[blockIdx.x] = here ? to_float(row[target]) - highest : 0.0f;
  sync_block();
  float sum = 0.0f;
  for_columns<N>(columns.live, [&](int64_t column) {
    float values[N];
    load_values(values, row + column);
    for (int i = 0; i < N; ++i) {
      if (column + i >= columns.live) continue;
      values[i] = exp_for<T>(values[i] - highest);
      sum += values[i];
    }
    store_values(row + column, values);
  });
  sum = reduce_block(sum, Plus{}, shared_memory<float>());
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

template <class T, int N>
__global__ void __launch_bounds__(kBlockRowThreads)
    finish(T* logits, const int32_t* targets, const float* sums, const float* target_logits,
           float* losses, Columns columns, bool gradient, float scale) {
  const bool counted = targets[blockIdx.x] >= 0;
  const float sum = sums[blockIdx.x];
  if (threadIdx.x == 0) {
    losses[blockIdx.x] = counted ? logf(sum) - target_logits[blockIdx.x] : 0.0f;
  }
  if (!gradient) return;
  const Gradient g{.factor = counted ? scale / sum : 0.0f,
                   .scale = scale,
                   .target = targets[blockIdx.x] - columns.begin};
  T* row = logits + int64_t{blockIdx.x} * columns.count;
  write_gradient<T, N>(row, row, columns, g, [](float exponential) { return exponential; });
}

LaunchShape rows_shape(const char* name, const ClassifierShape& shape) {
  return block_rows_shape(name, shape.rows, shape.columns, sizeof(MaxAndSum));
}

// The shape of blocks that also keep a row of logits; may not be launchable.
LaunchShape kept_rows_shape(const ClassifierShape& shape, DType dtype) {
  LaunchShape kept = rows_shape("classifier", shape);
  kept.shared_bytes = kBlockRowThreads / kWarpThreads * sizeof(MaxAndSum) +
                      static_cast<size_t>(shape.columns) * dtype_bytes(dtype);
  return kept;
}

PackedRows logit_rows(const ConstView& logits, const ClassifierShape& shape) {
  return {.dtype = logits.dtype, .width = shape.columns, .begins = {logits.data}};
}

}  // namespace

void classifier(Stream& stream, const Classifier& args) {
  const ClassifierShape& shape = args.shape;
  CHECK(shape.column_begin == 0 && shape.columns >= shape.vocabulary);
  const LaunchShape kept = kept_rows_shape(shape, args.logits.dtype);
  dispatch(logit_rows(args.logits, shape), [&]<class T, int N>(Pack<T, N>) {
    const auto start = [&](const LaunchShape& blocks, auto kernel) {
      launch(stream, blocks, kernel, elements_of<T>(args.logits), args.targets, args.losses,
             columns_of(shape), args.gradient, args.gradient_scale);
    };
    if constexpr (N > 1) {
      if (args.gradient && is_launchable(kept)) return start(kept, classify<T, N, true>);
    }
    start(rows_shape("classifier", shape), classify<T, N, false>);
  });
}

void classifier_hits(Stream& stream, const ClassifierHits& args) {
  const ClassifierShape& shape = args.shape;
  CHECK(shape.column_begin == 0 && shape.columns >= shape.vocabulary);
  dispatch(logit_rows(args.logits, shape), [&]<class T, int N>(Pack<T, N>) {
    launch(stream, rows_shape("classifier_hits", shape), find_hits<T>, elements_of<T>(args.logits),
           args.targets, args.hits, columns_of(shape), static_cast<float>(args.top));
  });
}

void classifier_max(Stream& stream, const ClassifierMax& args) {
  dispatch(logit_rows(args.logits, args.shape), [&]<class T, int N>(Pack<T, N>) {
    launch(stream, rows_shape("classifier_max", args.shape), find_maxima<T, N>,
           elements_of<T>(args.logits), args.maxima, columns_of(args.shape));
  });
}

void classifier_sum(Stream& stream, const ClassifierSum& args) {
  dispatch(logit_rows(args.logits, args.shape), [&]<class T, int N>(Pack<T, N>) {
    launch(stream, rows_shape("classifier_sum", args.shape), sum_exponentials<T, N>,
           elements_of<T>(args.logits), args.targets, args.maxima, args.sums, args.target_logits,
           columns_of(args.shape));
  });
}

void classifier_finish(Stream& stream, const ClassifierFinish& args) {
  dispatch(logit_rows(args.logits, args.shape), [&]<class T, int N>(Pack<T, N>) {
    launch(stream, rows_shape("classifier_finish", args.shape), finish<T, N>,
           elements_of<T>(args.logits), args.targets, args.sums, args.target_logits, args.losses,
           columns_of(args.shape), args.gradient, args.gradient_scale);
  });
}

}  // namespace lockstep::kernels::cuda
