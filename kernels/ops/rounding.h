#pragma once

#include <cstdint>

// Stochastic rounding from fp32 to bf16 with the same bits on every device: pure functions for host
// and device.
namespace lockstep::kernels {

// A bijection of 64 bits whose outputs look independent. Source: the finalizer of SplitMix64,
// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA'14.
constexpr uint64_t mixed_bits(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Returns the key of one update. The random bits of an element are the lower 16 bits of
// mixed_bits(key + its index).
constexpr uint64_t rounding_key(uint64_t seed, int64_t step) {
  return mixed_bits(mixed_bits(seed) + static_cast<uint64_t>(step));
}

// Returns the upper half of `bits` (a float's) or the next value away from zero, with a probability
// equal to the truncated fraction: adds 16 random bits and drops the lower half. Infinity is
// unchanged; NaN becomes quiet.
constexpr uint16_t round_stochastically(uint32_t bits, uint64_t random) {
  constexpr uint32_t kExponent = 0x7F800000u;
  if ((bits & kExponent) != kExponent) {
    return static_cast<uint16_t>((bits + (static_cast<uint32_t>(random) & 0xFFFFu)) >> 16);
  }
  const bool is_nan = (bits & 0x007FFFFFu) != 0;
  return static_cast<uint16_t>((bits >> 16) | (is_nan ? 0x40u : 0u));
}

}  // namespace lockstep::kernels
