#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

using Digest = std::array<uint8_t, 32>;

// Incremental SHA-256. Source: FIPS 180-4.
class Sha256 {
 public:
  Sha256();
  void update(const void* data, size_t bytes);
  // Call once; the object cannot be used afterwards.
  Digest finish();

 private:
  void compress(const uint8_t* block);

  std::array<uint32_t, 8> state_;
  std::array<uint8_t, 64> buffer_{};
  uint64_t total_bytes_ = 0;
};

Digest sha256(std::string_view data);
// Source: RFC 2104, with SHA-256.
Digest hmac_sha256(std::string_view key, std::string_view message);
// Returns 64 lower-case hex digits.
std::string hex(const Digest& digest);
// Compares in time that depends only on the sizes.
bool equal_constant_time(std::string_view a, std::string_view b);

}  // namespace lockstep
