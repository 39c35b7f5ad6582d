// CRC-32C with the instruction of SSE 4.2, 8 bytes at a time. One stream is limited by the
// instruction's latency of 3 cycles: about 8 GB/s at 3 GHz, faster than the storage behind it.
#include <immintrin.h>

#include <cstring>

#include "common/base/crc32c_update.h"

namespace lockstep {
namespace {

[[gnu::target("sse4.2")]] uint32_t update_by_instruction(uint32_t crc, const uint8_t* data,
                                                         size_t bytes) {
  uint64_t sum = crc;
  for (; bytes >= sizeof(uint64_t); data += sizeof(uint64_t), bytes -= sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, data, sizeof(word));
    sum = _mm_crc32_u64(sum, word);
  }
  crc = static_cast<uint32_t>(sum);
  for (; bytes > 0; ++data, --bytes) crc = _mm_crc32_u8(crc, *data);
  return crc;
}

}  // namespace

Crc32cUpdate crc32c_update_native() {
  return __builtin_cpu_supports("sse4.2") ? update_by_instruction : nullptr;
}

}  // namespace lockstep
