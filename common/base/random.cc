#include "common/base/random.h"

#include <array>
#include <bit>
#include <cmath>
#include <numbers>

#include "common/base/check.h"

namespace lockstep {
namespace {

using Block = std::array<uint32_t, 4>;

Block philox(Block counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {
        static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
        static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

uint64_t mix(uint64_t value) {  // splitmix64's finaliser
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

}  // namespace

uint32_t Random::next_u32() {
  const uint64_t index = position_ / 4;
  if (index != block_index_) {
    const Block counter = {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                           static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)};
    block_ = philox(counter, static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32));
    block_index_ = index;
  }
  return block_[position_++ % 4];
}

uint64_t Random::next_u64() {
  const uint64_t high = next_u32();
  return (high << 32) | next_u32();
}

uint64_t Random::below(uint64_t bound) {
  CHECK(bound > 0);
  __extension__ using Wide = unsigned __int128;
  Wide product = Wide{next_u64()} * bound;
  if (static_cast<uint64_t>(product) < bound) {
    const uint64_t threshold = (0 - bound) % bound;
    while (static_cast<uint64_t>(product) < threshold) product = Wide{next_u64()} * bound;
  }
  return static_cast<uint64_t>(product >> 64);
}

float Random::uniform() {
  return static_cast<float>(next_u32() >> 8) * 0x1p-24f;
}

float Random::normal() {
  const double u1 = (static_cast<double>(next_u32()) + 1.0) * 0x1p-32;
  const double u2 = static_cast<double>(next_u32()) * 0x1p-32;
  return static_cast<float>(std::sqrt(-2.0 * std::log(u1)) * std::cos(2.0 * std::numbers::pi * u2));
}

uint64_t permute(uint64_t position, uint64_t size, uint64_t seed) {
  CHECK(position < size);
  if (size == 1) return 0;
  const int half_bits = (static_cast<int>(std::bit_width(size - 1)) + 1) / 2;
  const uint64_t half_mask = (uint64_t{1} << half_bits) - 1;
  uint64_t value = position;
  do {
    uint64_t left = value >> half_bits;
    uint64_t right = value & half_mask;
    for (uint64_t round = 0; round < 6; ++round) {
      const uint64_t next =
          left ^ (mix(mix(seed + round * 0x9E3779B97F4A7C15) ^ right) & half_mask);
      left = right;
      right = next;
    }
    value = (left << half_bits) | right;
  } while (value >= size);
  return value;
}

}  // namespace lockstep
