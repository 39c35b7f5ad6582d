#include "kernels/ops/normal.h"

#include "kernels/device/parallel.h"
#include LOCKSTEP_ISA_HEADER
#include "kernels/ops/cpu_ops.h"
#include "kernels/ops/simd.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

constexpr int64_t kGrain = 4096;
constexpr int kRounds = 10;
constexpr int kGroup = 2 * kLanes;  // numbers that are made together

// Words of 32 bits, each in a lane of 64 whose upper half is undefined: a block a lane.
struct Words {
  WideVec word[4];
};

// The part of Philox's state that depends on the stream alone.
struct PhiloxStream {
  WideVec keys[kRounds][2];
  WideVec id[2];
};

PhiloxStream stream_of(const NormalFill& args) {
  PhiloxStream stream;
  auto key0 = static_cast<uint32_t>(args.seed);
  auto key1 = static_cast<uint32_t>(args.seed >> 32);
  for (WideVec(&keys)[2] : stream.keys) {
    keys[0] = all_wide(key0);
    keys[1] = all_wide(key1);
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  stream.id[0] = all_wide(args.stream);
  stream.id[1] = all_wide(args.stream >> 32);
  return stream;
}

inline Words next_round(const Words& c, const WideVec (&keys)[2]) {
  const WideVec product0 = word_product(c.word[0], all_wide(0xD2511F53));
  const WideVec product1 = word_product(c.word[2], all_wide(0xCD9E8D57));
  return {{(product1 >> 32) ^ c.word[1] ^ keys[0], product1, (product0 >> 32) ^ c.word[3] ^ keys[1],
           product0}};
}

// Philox4x32-10 of the kLanes blocks from `first` on. The rounds of the two halves take turns,
// since each waits for the one before.
inline void philox(const PhiloxStream& stream, uint64_t first, Words (&halves)[2]) {
  WideVec index = all_wide(first);
  for (int i = 0; i < kLanes / 2; ++i) index[i] += static_cast<uint64_t>(i);
  for (Words& half : halves) {
    half = {{index, index >> 32, stream.id[0], stream.id[1]}};
    index += kLanes / 2;
  }
#pragma GCC unroll 10
  for (int round = 0; round < kRounds; ++round) {
    for (Words& half : halves) half = next_round(half, stream.keys[round]);
  }
}

// Converts words, exactly, and adds a small integer. The bits of 2^52 with a word as their lowest
// are those of 2^52 + word.
inline DoubleVec to_double(WideVec words, double addend) {
  return (DoubleVec)((words & 0xFFFFFFFFu) | 0x4330000000000000u) - (0x1p52 - addend);
}

// sqrt is correctly rounded; GCC makes one instruction of the loop.
inline DoubleVec sqrt_of(DoubleVec x) {
  for (int i = 0; i < kLanes / 2; ++i) x[i] = __builtin_sqrt(x[i]);
  return x;
}

// -2 log(u) for u = (word + 1) / 2^32 = 2^e m, with m in [sqrt(1/2), sqrt(2)).
// log(m) = 2 atanh(s) with s = (m - 1) / (m + 1), so |s| <= (sqrt(2) - 1)^2 = 0.1716, and
// atanh(s) / s = 1 + s^2/3 + s^4/5 + ... + s^16/17, cut where the rest is below s^18/19 (1 + s^2)
// <= 9.0e-16. m - 1 is exact, so the relative error stays small near u = 1, too.
inline DoubleVec minus_two_log(WideVec words) {
  constexpr uint64_t kSqrtHalf = 0x3FE6A09E667F3BCD;  // the bits of sqrt(1/2)
  constexpr double kMinusTwoLog2 = -1.3862943611198906;
  const WideVec bits = (WideVec)to_double(words, 1);
  const WideVec exponent = (bits - kSqrtHalf) >> 52;  // e + 32
  const DoubleVec m = (DoubleVec)(bits - (exponent << 52));
  const DoubleVec e = to_double(exponent, -32);
  const DoubleVec s = (m - 1.0) / (m + 1.0);
  const DoubleVec q = s * s;
  const DoubleVec q2 = q * q, q4 = q2 * q2;
  const DoubleVec low = (1.0 + q * (1.0 / 3)) + q2 * (1.0 / 5 + q * (1.0 / 7));
  const DoubleVec high = (1.0 / 9 + q * (1.0 / 11)) + q2 * (1.0 / 13 + q * (1.0 / 15));
  const DoubleVec p = low + q4 * (high + q4 * (1.0 / 17));
  return e * kMinusTwoLog2 + (s * -4.0) * p;
}

// cos(x) for x = 2 pi u rounded to double, as in the reference, with u = word / 2^32.
// With c the zero of cos on x's side of pi, pi/2 or 3 pi/2, and r = x - c, |r| <= pi/2, that is
// -sin(r) or sin(r). c is the sum of two doubles. The first one's product with 3 and, near the
// zero, the difference to x are exact, so small results keep their relative error. sin(r) / r = 1 -
// r^2/3! + r^4/5! - ... - r^18/19!, cut where the rest is below r^20/21! <= 1.7e-16, against a sum
// of 0.63 or more.
inline DoubleVec cosine(WideVec words) {
  constexpr double kTwoPi = 6.283185307179586;
  constexpr double kHalfPi = 0x1.921fb54442d18p+0, kHalfPiRest = 0x1.1a62633145c07p-54;
  const DoubleVec word = to_double(words, 0);
  const auto is_late = word >= 0x1p31;
  const DoubleVec x = word * (kTwoPi * 0x1p-32);
  const DoubleVec zero = DoubleVec{};
  const DoubleVec first = is_late ? zero + 3 * kHalfPi : zero + kHalfPi;
  const DoubleVec rest = is_late ? zero + 3 * kHalfPiRest : zero + kHalfPiRest;
  const DoubleVec distance = (x - first) - rest;
  const DoubleVec r = is_late ? distance : -distance;
  const DoubleVec q = r * r;
  const DoubleVec q2 = q * q, q4 = q2 * q2;
  const DoubleVec low = (1.0 - q * (1.0 / 6)) + q2 * (1.0 / 120 - q * (1.0 / 5040));
  const DoubleVec high =
      (1.0 / 362880 - q * (1.0 / 39916800)) + q2 * (1.0 / 6227020800 - q * (1.0 / 1307674368000));
  const DoubleVec highest = 1.0 / 355687428096000 - q * (1.0 / 121645100408832000);
  const DoubleVec p = low + q4 * (high + q4 * highest);
  return r * p;
}

inline FloatHalf box_muller(WideVec words1, WideVec words2) {
  return __builtin_convertvector(sqrt_of(minus_two_log(words1)) * cosine(words2), FloatHalf);
}

// The numbers of the blocks first, first + 1, ...: two of each.
inline void make_group(const PhiloxStream& stream, uint64_t first, Vec (&out)[2]) {
  FloatHalf even[2], odd[2];  // numbers of a block
  Words halves[2];
  philox(stream, first, halves);
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const WideVec(&word)[4] = halves[half].word;
    even[half] = box_muller(word[0], word[1]);
    odd[half] = box_muller(word[2], word[3]);
  }
  Vec a, b;
  __builtin_memcpy(&a, even, sizeof a);
  __builtin_memcpy(&b, odd, sizeof b);
  out[0] = Interleave<0>::of(a, b);
  out[1] = Interleave<1>::of(a, b);
}

void fill_range(const NormalFill& args, const PhiloxStream& stream, Range range) {
  int64_t count = 0;
  for (int64_t i = range.begin; i < range.end; i += count) {
    const uint64_t number = args.first + static_cast<uint64_t>(i);
    const auto skipped = static_cast<int64_t>(number % 2);  // the block's first, made in vain
    Vec group[2];
    make_group(stream, number / 2, group);
    for (Vec& numbers : group) numbers *= args.deviation;
    count = min_of(kGroup - skipped, range.end - i);
    if (count == kGroup) {
      store(args.out + i, group[0]);
      store(args.out + i + kLanes, group[1]);
    } else {
      float numbers[kGroup];
      __builtin_memcpy(numbers, group, sizeof numbers);
      __builtin_memcpy(args.out + i, numbers + skipped, static_cast<size_t>(count) * sizeof(float));
    }
  }
}

}  // namespace

void fill_normal(const NormalFill& args) {
  const PhiloxStream stream = stream_of(args);
  parallel_for(args.count, kGrain, [&](Range range) { fill_range(args, stream, range); });
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
