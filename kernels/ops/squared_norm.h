#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "kernels/device/device.h"

namespace lockstep::kernels {

// A sum of squares of floats whose value depends on the numbers alone: not on their order, nor on
// how they are split over threads, calls, devices and ranks. All words are integers, so sums of
// parts are sums of words, which ranks may all_reduce as int64. Zeroes are an empty sum.
//
// The square of a float is exact in double. It is cut into digits of 48 bits on a grid that is
// fixed for all numbers, and the digits of each place are summed exactly. A block of numbers adds
// to two places only, those of its largest square. value_of() reads the two places of the largest
// square of all, so places that some blocks have left out do not count. A square is therefore off
// by at most 2^-48 of the largest one.
// Source: Demmel and Nguyen, "Parallel reproducible summation", IEEE Transactions on Computers,
// 2015. Up to 2^40 numbers.
inline constexpr int kSquarePlaces = 13;
struct SquareSum {
  struct Place {
    int64_t high = 0;  // the sum of the digits is high * 2^32 + low
    int64_t low = 0;
  };
  Place places[kSquarePlaces] = {};  // place i has the unit 2^(48 i - 346)
  int64_t infinities = 0;            // blocks with an infinity, and no NaN
  int64_t nans = 0;                  // blocks with a NaN
};
inline constexpr int kSquareWords = sizeof(SquareSum) / sizeof(int64_t);

// The functions below are for host and device.

constexpr double power_of_two(int exponent) {
  double power = 1.0, factor = exponent < 0 ? 0.5 : 2.0;
  for (int left = exponent < 0 ? -exponent : exponent; left > 0; left /= 2) {
    if (left % 2 == 1) power *= factor;
    if (left > 1) factor *= factor;
  }
  return power;
}

// How to cut the squares of a block. With (x + shift) - shift a square x is rounded to a multiple
// of the place's unit (to nearest even, as everywhere).
struct SquareGrid {
  int place = 0;  // of the first digit; the second one's is place - 1
  double unit = 0.0;
  double shift = 0.0;  // 1.5 * 2^52 units
};
inline constexpr int kSquarePlaceBits = 48;
inline constexpr double kSecondUnit = 1.0 / 281474976710656.0;  // 2^-48 of the first one

// Returns the grid of a block by the bits of its largest magnitude, which is finite. The largest
// square is above half a unit, and below half the unit of the place above: other blocks, which do
// not have this place, would round their squares to 0 there. Half units are odd powers of two,
// which no square equals.
constexpr SquareGrid square_grid(uint32_t largest) {
  const int field = static_cast<int>(largest >> 23);
  const uint64_t mantissa = (largest & 0x7FFFFFu) | 0x800000u;
  const int exponent = 2 * (field - 127) + (mantissa * mantissa >= (uint64_t{1} << 47) ? 1 : 0);
  const int place = field == 0 ? 1 : (exponent + 299) / kSquarePlaceBits + 1;
  const double unit = power_of_two(kSquarePlaceBits * place - 346);
  return {.place = place, .unit = unit, .shift = 6755399441055744.0 * unit};
}

// Adds the sum of digits, in units of their place.
constexpr void add_digits(SquareSum& sum, int place, int64_t digits) {
  sum.places[place].high += digits >> 32;
  sum.places[place].low += digits & 0xFFFFFFFF;
}

// Counts a block whose largest magnitude has these bits, which are not finite.
constexpr void add_not_finite(SquareSum& sum, uint32_t largest) {
  (largest > 0x7F800000u ? sum.nans : sum.infinities) += 1;
}

// Returns the same number with 0 <= low < 2^32.
constexpr SquareSum::Place carried(SquareSum::Place place) {
  return {place.high + (place.low >> 32), place.low & 0xFFFFFFFF};
}

// Returns the sum, rounded to double.
constexpr double value_of(const SquareSum& sum) {
  if (sum.nans > 0) return std::numeric_limits<double>::quiet_NaN();
  if (sum.infinities > 0) return std::numeric_limits<double>::infinity();
  int top = kSquarePlaces - 1;
  SquareSum::Place first = carried(sum.places[top]);
  while (top > 1 && first.high == 0 && first.low == 0) first = carried(sum.places[--top]);
  const SquareSum::Place second = carried(sum.places[top - 1]);
  const int64_t carry = second.high >> 16;  // 2^48 second units are a first one
  const int64_t rest = ((second.high & 0xFFFF) << 32) + second.low;
  first = carried({first.high + (carry >> 32), first.low + (carry & 0xFFFFFFFF)});
  const double low = static_cast<double>(first.low) + static_cast<double>(rest) * kSecondUnit;
  const double units = static_cast<double>(first.high) * 4294967296.0 + low;
  return units * power_of_two(kSquarePlaceBits * top - 346);
}

struct FlatTensor {
  const float* data = nullptr;
  int64_t count = 0;
};

// *sum += the squares of all elements.
struct SquaredNorm {
  std::span<const FlatTensor> tensors = {};
  SquareSum* sum = nullptr;  // on the device
};

}  // namespace lockstep::kernels
