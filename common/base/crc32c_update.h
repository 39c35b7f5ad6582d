#pragma once

#include <cstddef>
#include <cstdint>

// The inner loop of CRC-32C, without the complements before and after it: portable, and with the
// machine's own instruction.
namespace lockstep {

using Crc32cUpdate = uint32_t (*)(uint32_t crc, const uint8_t* data, size_t bytes);

uint32_t crc32c_update_portable(uint32_t crc, const uint8_t* data, size_t bytes);

// Returns the version that uses this machine's CRC instruction (same result), or null if it has
// none. Defined in crc32c_update_x86.cc or crc32c_update_none.cc.
Crc32cUpdate crc32c_update_native();

}  // namespace lockstep
