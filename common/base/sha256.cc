#include "common/base/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/base/sha256_block.h"

namespace lockstep {
namespace {

uint32_t load_big_endian(const uint8_t* p) {
  return (uint32_t{p[0]} << 24) | (uint32_t{p[1]} << 16) | (uint32_t{p[2]} << 8) | uint32_t{p[3]};
}

}  // namespace

void sha256_block_portable(Sha256State& state, const uint8_t* block) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i) w[i] = load_big_endian(block + 4 * i);
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kSha256Round[i] + w[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::array<uint32_t, 8> add = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state[i] += add[i];
}

Sha256::Sha256()
    : state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
             0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {}

void Sha256::compress(const uint8_t* block) {
  static const Sha256Block kNative = sha256_block_native();
  (kNative != nullptr ? kNative : sha256_block_portable)(state_, block);
}

void Sha256::update(const void* data, size_t bytes) {
  const auto* p = static_cast<const uint8_t*>(data);
  size_t used = total_bytes_ % 64;
  total_bytes_ += bytes;
  while (bytes > 0) {
    if (used == 0 && bytes >= 64) {
      compress(p);
      p += 64, bytes -= 64;
      continue;
    }
    const size_t take = std::min(bytes, 64 - used);
    std::memcpy(buffer_.data() + used, p, take);
    used += take, p += take, bytes -= take;
    if (used == 64) {
      compress(buffer_.data());
      used = 0;
    }
  }
}

Digest Sha256::finish() {
  const uint64_t bits = total_bytes_ * 8;
  // Padding: a one bit, zeros up to the last 8 bytes of a block, then the length in bits.
  std::array<uint8_t, 128> end{0x80};
  const size_t used = total_bytes_ % 64;
  const size_t size = (used < 56 ? 64 : 128) - used;
  for (size_t i = 0; i < 8; ++i) end[size - 8 + i] = static_cast<uint8_t>(bits >> (56 - 8 * i));
  update(end.data(), size);
  Digest digest;
  for (size_t i = 0; i < 32; ++i)
    digest[i] = static_cast<uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
  return digest;
}

Digest sha256(std::string_view data) {
  Sha256 hash;
  hash.update(data.data(), data.size());
  return hash.finish();
}

Digest hmac_sha256(std::string_view key, std::string_view message) {
  std::array<uint8_t, 64> block{};
  if (key.size() > block.size()) {
    const Digest short_key = sha256(key);
    std::copy(short_key.begin(), short_key.end(), block.begin());
  } else {
    std::copy(key.begin(), key.end(), block.begin());
  }
  std::array<uint8_t, 64> inner_pad;
  std::array<uint8_t, 64> outer_pad;
  for (size_t i = 0; i < 64; ++i) {
    inner_pad[i] = static_cast<uint8_t>(block[i] ^ 0x36);
    outer_pad[i] = static_cast<uint8_t>(block[i] ^ 0x5c);
  }
  Sha256 inner;
  inner.update(inner_pad.data(), inner_pad.size());
  inner.update(message.data(), message.size());
  const Digest inner_digest = inner.finish();
  Sha256 outer;
  outer.update(outer_pad.data(), outer_pad.size());
  outer.update(inner_digest.data(), inner_digest.size());
  return outer.finish();
}

std::string hex(const Digest& digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(64);
  for (const uint8_t byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

bool equal_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |=
        static_cast<unsigned>(static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]));
  }
  return difference == 0;
}

}  // namespace lockstep
