// Vector types for the instruction set that a source file is compiled for.
//
// The op sources are compiled once per instruction set, each time into a namespace of that name.
// They include their headers, then LOCKSTEP_ISA_HEADER (isa/*.h), then this file. Code after
// LOCKSTEP_ISA_HEADER must not instantiate standard library templates: the linker would keep one
// instance for all instruction sets, which older CPUs may not be able to run.
#pragma once

#include <cstdint>

#ifndef LOCKSTEP_ISA
#error "include LOCKSTEP_ISA_HEADER before kernels/ops/simd.h"
#endif

namespace lockstep::kernels::LOCKSTEP_ISA {
namespace {

inline constexpr int kLanes = LOCKSTEP_ISA_LANES;
inline constexpr int kRegisters = LOCKSTEP_ISA_REGISTERS;

typedef float Vec __attribute__((vector_size(kLanes * 4)));
typedef int32_t IntVec __attribute__((vector_size(kLanes * 4)));
typedef uint32_t UintVec __attribute__((vector_size(kLanes * 4)));
typedef uint16_t HalfVec __attribute__((vector_size(kLanes * 2)));
typedef float FloatHalf __attribute__((vector_size(kLanes * 2)));
typedef double DoubleVec __attribute__((vector_size(kLanes * 4)));
typedef uint64_t WideVec __attribute__((vector_size(kLanes * 4)));
typedef long long LongLongVec __attribute__((vector_size(kLanes * 4)));  // of compiler builtins

constexpr int64_t min_of(int64_t a, int64_t b) {
  return a < b ? a : b;
}
constexpr int64_t max_of(int64_t a, int64_t b) {
  return a > b ? a : b;
}
constexpr int64_t round_up(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

inline Vec load(const float* p) {
  Vec v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
inline void store(float* p, Vec v) {
  __builtin_memcpy(p, &v, sizeof v);
}
// Loads the first n < kLanes elements and zeroes the rest.
inline Vec load_part(const float* p, int64_t n) {
  Vec v = {};
  for (int64_t i = 0; i < n; ++i) v[i] = p[i];
  return v;
}
inline void store_part(float* p, Vec v, int64_t n) {
  for (int64_t i = 0; i < n; ++i) p[i] = v[i];
}
inline Vec all(float x) {
  return x - Vec{};
}
inline WideVec all_wide(uint64_t x) {
  return x - WideVec{};
}
// The 64-bit product of the lower halves of each lane; their upper halves count for nothing.
inline WideVec word_product(WideVec a, WideVec b) {
  return LOCKSTEP_ISA_WORD_PRODUCT(a, b);
}
inline Vec max_vec(Vec a, Vec b) {
  return a > b ? a : b;
}
// 0, 1, 2, ...
inline IntVec iota() {
  IntVec v = {};
  for (int i = 0; i < kLanes; ++i) v[i] = i;
  return v;
}

// Folds the vector in halves, 0 with n/2, 1 with n/2 + 1, ..., until one element is left.
template <int kCount>
struct Folded {
  typedef float Half __attribute__((vector_size(kCount * 2)));
  template <class V, class Combine>
  static float fold(V v, Combine combine) {
    Half halves[2];
    __builtin_memcpy(halves, &v, sizeof v);
    return Folded<kCount / 2>::fold(combine(halves[0], halves[1]), combine);
  }
};
template <>
struct Folded<2> {
  template <class V, class Combine>
  static float fold(V v, Combine combine) {
    return combine(float{v[0]}, float{v[1]});
  }
};

inline float sum_of(Vec v) {
  return Folded<kLanes>::fold(v, [](auto a, auto b) { return a + b; });
}
inline float max_of(Vec v) {
  return Folded<kLanes>::fold(v, [](auto a, auto b) { return a > b ? a : b; });
}

// Interleaves the lower halves (kHalf 0) or the upper halves (1) of a and b: a0 b0 a1 b1 ...
template <int kHalf, int kCount = kLanes, int... kFrom>
struct Interleave : Interleave<kHalf, kCount - 1, kCount - 1, kFrom...> {};
template <int kHalf, int... kFrom>
struct Interleave<kHalf, 0, kFrom...> {
  static Vec of(Vec a, Vec b) {
    constexpr int kStart = kHalf * kLanes / 2;
    return __builtin_shufflevector(a, b, (kStart + kFrom / 2 + kFrom % 2 * kLanes)...);
  }
};

// Transposes a kLanes x kLanes block. Each round interleaves the first half of the rows with the
// second, which moves one bit of the row index into the column index.
inline void transpose_square(Vec (&rows)[kLanes]) {
#pragma GCC unroll 4
  for (int round = 1; round < kLanes; round *= 2) {
    Vec next[kLanes];
#pragma GCC unroll 8
    for (int i = 0; i < kLanes / 2; ++i) {
      next[2 * i] = Interleave<0>::of(rows[i], rows[i + kLanes / 2]);
      next[2 * i + 1] = Interleave<1>::of(rows[i], rows[i + kLanes / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) rows[i] = next[i];
  }
}

// e^x = 2^n * e^r with n an integer and |r| <= ln(2)/2; e^r by the polynomial of Cephes' expf.
struct ExpParts {
  Vec fraction;  // e^r
  IntVec n;
};
inline ExpParts exp_parts(Vec x) {
  const Vec shifter = all(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Vec shifted = x * 1.44269504088896341f + shifter;
  const Vec n = shifted - shifter;
  Vec r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  Vec p = all(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return {p, (IntVec)shifted - 0x4B400000};
}

// Within 2 ulp; x must be <= 88, the result is 0 below -87, and NaN for NaN.
inline Vec exp_bounded(Vec x) {
  const Vec low = all(-87.0f);
  const ExpParts e = exp_parts(x < low ? low : x);
  const Vec p = (Vec)((IntVec)e.fraction + (e.n << 23));
  return x < low ? Vec{} : p;
}

// GELU(x) = x * s, s = 1 / (1 + e^(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3): equal to the tanh
// form, without its cancellation. Beyond |x| = 16, s is exactly 0 or 1 in fp32, so x is clamped
// there and no power of it overflows.
struct GeluTerms {
  Vec x;             // clamped
  Vec s;             // sigmoid(2u)
  Vec s_complement;  // 1 - s
};
inline constexpr float kGeluLimit = 16.0f;
inline constexpr float kGeluLinear = 1.5957691216057308f;   // 2 sqrt(2/pi)
inline constexpr float kGeluCubic = 0.071354816272600244f;  // 2 sqrt(2/pi) 0.044715

inline GeluTerms gelu_terms(Vec x) {
  const Vec low = all(-kGeluLimit), high = all(kGeluLimit);
  const Vec cut = x < low ? low : (x > high ? high : x);
  const Vec minus_two_u = -cut * (cut * cut * kGeluCubic + kGeluLinear);
  const Vec limit = all(87.0f);  // keeps e^(-2u) finite, so that e * s is not infinity times 0
  const Vec e = exp_bounded(minus_two_u > limit ? limit : minus_two_u);
  const Vec s = 1.0f / (1.0f + e);
  return {cut, x < low ? Vec{} : s, e * s};
}
inline Vec gelu(Vec x) {
  return x * gelu_terms(x).s;
}
inline Vec gelu_derivative(Vec x) {
  const GeluTerms t = gelu_terms(x);
  return t.s + t.x * t.s * t.s_complement * (t.x * t.x * (3.0f * kGeluCubic) + kGeluLinear);
}

// GELU(x) = x * P, P = (1 + erf(x / sqrt(2))) / 2, for |erf| by a polynomial times e^(-x^2/2),
// whose error is below 1.5e-7. Source: Abramowitz and Stegun, 7.1.26.
struct ErfGeluTerms {
  Vec p;        // P
  Vec density;  // e^(-x^2/2) / sqrt(2 pi)
};
inline ErfGeluTerms erf_gelu_terms(Vec x) {
  const Vec low = all(-kGeluLimit), high = all(kGeluLimit);
  const Vec cut = x < low ? low : (x > high ? high : x);
  const Vec z = (cut < Vec{} ? -cut : cut) * 0.70710678118654752f;
  const Vec t = 1.0f / (1.0f + z * 0.3275911f);
  Vec poly = all(1.061405429f);
  poly = poly * t - 1.453152027f;
  poly = poly * t + 1.421413741f;
  poly = poly * t - 0.284496736f;
  poly = poly * t + 0.254829592f;
  const Vec e = exp_bounded(-z * z);
  const Vec tail = poly * t * e * 0.5f;  // (1 - erf(z)) / 2
  return {cut < Vec{} ? tail : 1.0f - tail, e * 0.39894228040143268f};
}
inline Vec erf_gelu(Vec x) {
  return x * erf_gelu_terms(x).p;
}
inline Vec erf_gelu_derivative(Vec x) {
  const ErfGeluTerms terms = erf_gelu_terms(x);
  const Vec low = all(-kGeluLimit), high = all(kGeluLimit);
  return terms.p + (x < low ? low : (x > high ? high : x)) * terms.density;
}

// Converts fp32 to bf16, rounding to nearest even; a NaN becomes a quiet NaN.
inline HalfVec to_bf16(Vec v) {
  const UintVec bits = (UintVec)v;
  const UintVec rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const UintVec quiet = (bits >> 16) | 0x40u;
  const IntVec is_nan = v != v;
  return __builtin_convertvector(is_nan ? quiet : rounded, HalfVec);
}
inline Vec from_bf16(HalfVec v) {
  return (Vec)(__builtin_convertvector(v, UintVec) << 16);
}

// Calls body(i, n) for i = 0, kLanes, ...: n is kLanes, or the remainder for the last vector. Load
// and store with load_n and store_n.
template <class Body>
inline void for_vectors(int64_t count, Body body) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body(i, int64_t{kLanes});
  if (i < count) body(i, count - i);
}
inline Vec load_n(const float* p, int64_t n) {
  return n == kLanes ? load(p) : load_part(p, n);
}
inline void store_n(float* p, Vec v, int64_t n) {
  if (n == kLanes) {
    store(p, v);
  } else {
    store_part(p, v, n);
  }
}

}  // namespace
}  // namespace lockstep::kernels::LOCKSTEP_ISA
