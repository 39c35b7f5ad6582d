#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

// Returns the CRC-32C of the bytes that `before` is the checksum of, followed by these bytes.
// `before` is 0 for the first bytes. Finds every error burst of up to 32 bits, in particular every
// changed byte. Source: RFC 3720, section 12.1 (Castagnoli's polynomial, reflected, complemented).
uint32_t crc32c(const void* data, size_t bytes, uint32_t before = 0);

}  // namespace lockstep
