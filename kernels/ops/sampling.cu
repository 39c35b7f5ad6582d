#include "kernels/ops/sampling.h"

#include "kernels/device/cuda/launch.cuh"
#include "kernels/device/cuda/reduce.cuh"
#include "kernels/ops/cuda_ops.h"
#include "kernels/ops/dispatch.cuh"

namespace lockstep::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kDigits = 256;

// Each block has a row, each thread a run of its tokens.
struct Shared {
  int32_t digits[kDigits];
  int32_t equals[kThreads];  // count at the threshold, in earlier runs
  double before[kThreads];   // sum of weights in earlier runs
  double total;
  uint32_t threshold;
  int32_t wanted;   // how many at the threshold are kept
  int32_t highest;  // the first of the largest logits
  int32_t token;
};

struct Row {
  int32_t vocabulary;
  int32_t top_k;  // the vocabulary if all are kept
  float temperature;
};

// Maps floats to unsigned integers with the same order.
__device__ __forceinline__ uint32_t ordered_bits(float value) {
  const uint32_t bits = bits_of_float(value + 0.0f);  // maps -0 to 0
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ int32_t run_begin(const Row& row, unsigned thread) {
  return static_cast<int32_t>(int64_t{row.vocabulary} * thread / kThreads);
}

// A logit and its token. The larger logit is better, and among equal ones the first.
struct Candidate {
  uint32_t order;
  int32_t token;
};
__device__ __forceinline__ Candidate shuffle_xor(const Candidate& value, int mask) {
  return {cuda::shuffle_xor(value.order, mask), cuda::shuffle_xor(value.token, mask)};
}
struct Better {
  __device__ Candidate operator()(const Candidate& a, const Candidate& b) const {
    const bool first = a.order > b.order || (a.order == b.order && a.token < b.token);
    return first ? a : b;
  }
};

template <class T>
__device__ __forceinline__ Candidate find_highest(const T* logits, const Row& row) {
  Candidate best{0, row.vocabulary - 1};
  for (int32_t v = run_begin(row, threadIdx.x); v < run_begin(row, threadIdx.x + 1); ++v) {
    best = Better{}(best, {ordered_bits(to_float(logits[v])), v});
  }
  return reduce_block(best, Better{}, shared_memory<Candidate>());
}

// Finds the top_k-th largest logit, digit by digit: counts the values of the next digit among the
// logits that share its upper digits.
template <class T>
__device__ __forceinline__ void find_threshold(const T* logits, const Row& row, Shared& shared) {
  if (threadIdx.x == 0) shared = {.threshold = 0, .wanted = row.top_k};
  for (int shift = 24; shift >= 0; shift -= 8) {
    sync_block();
    shared.digits[threadIdx.x] = 0;
    sync_block();
    const uint32_t upper = shared.threshold;
    for (int32_t v = static_cast<int32_t>(threadIdx.x); v < row.vocabulary; v += kThreads) {
      const uint32_t order = ordered_bits(to_float(logits[v]));
      if (shift < 24 && (order ^ upper) >> (shift + 8) != 0) continue;
      atomic_add(&shared.digits[order >> shift & 0xFFu], 1);
    }
    sync_block();
    if (threadIdx.x > 0) continue;
    uint32_t digit = kDigits - 1;
    for (; digit > 0 && shared.digits[digit] < shared.wanted; --digit) {
      shared.wanted -= shared.digits[digit];
    }
    shared.threshold |= digit << shift;
  }
  sync_block();
}

// Returns exp((logit - highest) / temperature) if the logit is kept, else 0. `equals` counts the
// logits at the threshold so far.
__device__ __forceinline__ float weight_of(float logit, float highest, const Row& row,
                                           const Shared& shared, int32_t& equals) {
  const uint32_t order = ordered_bits(logit);
  const bool counts =
      order > shared.threshold || (order == shared.threshold && equals < shared.wanted);
  if (order == shared.threshold) ++equals;
  return counts ? expf((logit - highest) / row.temperature) : 0.0f;
}

// Replaces each run's value by the sum of the runs before it. Returns the total.
template <class T>
__device__ __forceinline__ T add_up(T* runs, T own) {
  runs[threadIdx.x] = own;
  sync_block();
  T total = 0;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kThreads; ++i) {
      const T run = runs[i];
      runs[i] = total;
      total += run;
    }
  }
  sync_block();
  return total;  // valid in thread 0 only
}

template <class T>
__device__ __forceinline__ void draw(const T* logits, float highest, float uniform, const Row& row,
                                     Shared& shared) {
  const int32_t begin = run_begin(row, threadIdx.x), end = run_begin(row, threadIdx.x + 1);
  int32_t equals = 0;
  for (int32_t v = begin; v < end; ++v) {
    if (ordered_bits(to_float(logits[v])) == shared.threshold) ++equals;
  }
  add_up(shared.equals, equals);
  double sum = 0.0;
  equals = shared.equals[threadIdx.x];
  for (int32_t v = begin; v < end; ++v) {
    sum += static_cast<double>(weight_of(to_float(logits[v]), highest, row, shared, equals));
  }
  const double total = add_up(shared.before, sum);
  if (threadIdx.x == 0) shared.total = total;
  sync_block();
  const double goal = static_cast<double>(uniform) * shared.total;
  double passed = shared.before[threadIdx.x];
  const bool is_last = passed + sum >= shared.total;
  if (sum == 0.0 || passed > goal || (passed + sum <= goal && !is_last)) return;
  // The goal is in this run. Due to rounding the loop may not pass it; then the run's last token is
  // taken.
  int32_t token = -1;
  equals = shared.equals[threadIdx.x];
  for (int32_t v = begin; v < end; ++v) {
    const float weight = weight_of(to_float(logits[v]), highest, row, shared, equals);
    if (weight == 0.0f) continue;
    token = v;
    passed += static_cast<double>(weight);
    if (passed > goal) break;
  }
  shared.token = token;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    sample_rows(const T* logits, int64_t stride, const float* uniforms, int32_t* tokens, Row row) {
  logits += int64_t{blockIdx.x} * stride;
  const Candidate highest = find_highest(logits, row);
  if (row.temperature <= 0.0f) {
    if (threadIdx.x == 0) tokens[blockIdx.x] = highest.token;
    return;
  }
  Shared& shared = *shared_memory<Shared>();
  find_threshold(logits, row, shared);
  if (threadIdx.x == 0) shared.token = row.vocabulary;
  draw(logits, to_float(logits[highest.token]), uniforms[blockIdx.x], row, shared);
  sync_block();
  if (threadIdx.x == 0) {
    tokens[blockIdx.x] = shared.token < row.vocabulary ? shared.token : highest.token;
  }
}

}  // namespace

void sample(Stream& stream, const Sample& args) {
  CHECK(args.rows == 0 || (args.vocabulary > 0 && args.vocabulary <= INT32_MAX));
  const bool all = args.top_k <= 0 || args.top_k >= args.vocabulary;
  const Row row{.vocabulary = static_cast<int32_t>(args.vocabulary),
                .top_k = static_cast<int32_t>(all ? args.vocabulary : args.top_k),
                .temperature = args.temperature};
  const LaunchShape shape{.name = "sample",
                          .blocks = {.x = args.rows},
                          .threads = kThreads,
                          .shared_bytes = sizeof(Shared)};
  if (args.logits.dtype == DType::kF32) {
    launch(stream, shape, sample_rows<float>, args.logits.f32(), args.stride, args.uniforms,
           args.tokens, row);
  } else {
    launch(stream, shape, sample_rows<Bf16>, args.logits.bf16(), args.stride, args.uniforms,
           args.tokens, row);
  }
}

}  // namespace lockstep::kernels::cuda
