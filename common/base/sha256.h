#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

using Digest = std::array<uint8_t, 32>;

// SHA-256 in pieces. Source: FIPS 180-4.
class Sha256 {
 public:
  Sha256();
  void update(const void* data, size_t bytes);
  // Once; the object is spent afterwards.
  Digest finish();

 private:
  void compress(const uint8_t* block);

  std::array<uint32_t, 8> state_;
  std::array<uint8_t, 64> buffer_{};
  uint64_t total_bytes_ = 0;
};

Digest sha256(std::string_view data);
// Source: RFC 2104 with SHA-256.
Digest hmac_sha256(std::string_view key, std::string_view message);
// 64 lower-case digits.
std::string hex(const Digest& digest);
// In time that depends on the sizes alone.
bool equal_constant_time(std::string_view a, std::string_view b);

}  // namespace lockstep
