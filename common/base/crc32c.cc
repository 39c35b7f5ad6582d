#include "common/base/crc32c.h"

#include <array>

#include "common/base/crc32c_update.h"

namespace lockstep {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // reflected

// Row k gives the effect of a byte that is followed by k zero bytes.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t row = 1; row < tables.size(); ++row) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[row - 1][byte];
      tables[row][byte] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

// "Slicing-by-8": eight bytes with eight lookups that do not wait for each other. Source: Kounavis
// and Berry, "A systematic approach to building high performance software-based CRC generators",
// 2005.
uint32_t crc32c_update_portable(uint32_t crc, const uint8_t* data, size_t bytes) {
  for (; bytes >= 8; data += 8, bytes -= 8) {
    uint32_t next = 0;
    for (size_t i = 0; i < 8; ++i) {
      const uint32_t byte = i < 4 ? (data[i] ^ (crc >> (8 * i))) & 0xFF : data[i];
      next ^= kTables[7 - i][byte];
    }
    crc = next;
  }
  for (; bytes > 0; ++data, --bytes) crc = (crc >> 8) ^ kTables[0][(crc ^ *data) & 0xFF];
  return crc;
}

uint32_t crc32c(const void* data, size_t bytes, uint32_t before) {
  static const Crc32cUpdate native = crc32c_update_native();
  const Crc32cUpdate update = native != nullptr ? native : crc32c_update_portable;
  return ~update(~before, static_cast<const uint8_t*>(data), bytes);
}

}  // namespace lockstep
