#include "kernels/ops/squared_norm.h"

#include "kernels/device/parallel.h"
#include LOCKSTEP_ISA_HEADER
#include "kernels/ops/cpu_ops.h"
#include "kernels/ops/simd.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

constexpr int64_t kGrain = 16384;
// Read twice, hence small enough for the first cache. A digit has up to 47 bits, so the sum of as
// many fits into 63.
constexpr int64_t kBlock = 4096;

// Returns the bits of the largest magnitude; a NaN is above infinity.
uint32_t largest_bits(const float* x, int64_t count) {
  IntVec largest = {};
  for_vectors(count, [&](int64_t i, int64_t n) {
    const IntVec bits = (IntVec)load_n(x + i, n) & 0x7FFFFFFF;
    largest = bits > largest ? bits : largest;
  });
  int32_t result = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    result = largest[lane] > result ? largest[lane] : result;
  }
  return static_cast<uint32_t>(result);
}

// Sums of digits, in the lower bits of the doubles that the shifts make of them.
struct Digits {
  WideVec first = {};
  WideVec second = {};
};

inline void add_squares(FloatHalf x, double shift, double second_shift, Digits& digits) {
  const DoubleVec wide = __builtin_convertvector(x, DoubleVec);
  const DoubleVec square = wide * wide;
  const DoubleVec shifted = square + shift;
  const DoubleVec rest = square - (shifted - shift);
  digits.first += (WideVec)shifted;
  digits.second += (WideVec)(rest + second_shift);
}

// Returns the sum of the digits, of which `count` were added with this shift.
int64_t sum_of(WideVec digits, int64_t count, double shift) {
  uint64_t of_shift = 0, sum = 0;
  __builtin_memcpy(&of_shift, &shift, sizeof of_shift);
  for (int lane = 0; lane < kLanes / 2; ++lane) sum += digits[lane];
  return static_cast<int64_t>(sum - of_shift * static_cast<uint64_t>(count));
}

void add_block(const float* x, int64_t count, SquareSum& sum) {
  const uint32_t largest = largest_bits(x, count);
  if (largest == 0) return;
  if (largest >= 0x7F800000u) return add_not_finite(sum, largest);
  const SquareGrid grid = square_grid(largest);
  const double second_shift = grid.shift * kSecondUnit;
  Digits even, odd;
  for_vectors(count, [&](int64_t i, int64_t n) {
    __builtin_prefetch(x + i + kBlock);  // the next block, whose first pass waits for memory
    const Vec values = load_n(x + i, n);
    FloatHalf halves[2];
    __builtin_memcpy(halves, &values, sizeof halves);
    add_squares(halves[0], grid.shift, second_shift, even);
    add_squares(halves[1], grid.shift, second_shift, odd);
  });
  const int64_t added = round_up(count, kLanes);  // zeroes after the last element
  add_digits(sum, grid.place, sum_of(even.first + odd.first, added, grid.shift));
  add_digits(sum, grid.place - 1, sum_of(even.second + odd.second, added, second_shift));
}

// Threads add to the same sum; the order of integers does not matter.
void add_words(SquareSum& to, const SquareSum& from) {
  int64_t words[kSquareWords];
  __builtin_memcpy(words, &from, sizeof words);
  int64_t* target = reinterpret_cast<int64_t*>(&to);
  for (int i = 0; i < kSquareWords; ++i) {
    if (words[i] != 0) __atomic_fetch_add(target + i, words[i], __ATOMIC_RELAXED);
  }
}

}  // namespace

void squared_norm(Stream&, const SquaredNorm& args) {
  for (size_t t = 0; t < args.tensors.size(); ++t) {
    const FlatTensor& tensor = args.tensors[t];
    parallel_for(tensor.count, kGrain, [&](Range range) {
      SquareSum sum;
      for (int64_t at = range.begin; at < range.end; at += kBlock) {
        add_block(tensor.data + at, min_of(kBlock, range.end - at), sum);
      }
      add_words(*args.sum, sum);
    });
  }
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
