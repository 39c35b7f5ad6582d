#include "agent/comm/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace lockstep::comm {

#if defined(__x86_64__)

void copy_past_cache(std::byte* into, const std::byte* from, size_t bytes) {
  constexpr size_t kLine = 64;
  const size_t before = (kLine - reinterpret_cast<uintptr_t>(into) % kLine) % kLine;
  const size_t head = std::min(bytes, before);
  std::memcpy(into, from, head);
  size_t at = head;
  for (; at + kLine <= bytes; at += kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from + at);
    auto* target = reinterpret_cast<__m128i*>(into + at);
    const __m128i a = _mm_loadu_si128(source);
    const __m128i b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2);
    const __m128i d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  _mm_sfence();
  std::memcpy(into + at, from + at, bytes - at);
}

#else

void copy_past_cache(std::byte* into, const std::byte* from, size_t bytes) {
  std::memcpy(into, from, bytes);
}

#endif

}  // namespace lockstep::comm
