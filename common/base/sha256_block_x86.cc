// SHA-256 with the x86 SHA extensions. Source: Intel, "Intel SHA extensions", 2013; Intel's
// software developer's manual, SHA256RNDS2, SHA256MSG1, SHA256MSG2.
#include <cpuid.h>
#include <immintrin.h>

#include "common/base/sha256_block.h"

namespace lockstep {
namespace {

// Computes the next four message words from the 16 before: w[t-16] + s0(w[t-15]) + w[t-7] +
// s1(w[t-2]).
[[gnu::target("sha,sse4.1")]] inline __m128i next_words(const __m128i (&before)[4]) {
  const __m128i seventh = _mm_alignr_epi8(before[3], before[2], 4);
  const __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(before[0], before[1]), seventh);
  return _mm_sha256msg2_epu32(sum, before[3]);
}

[[gnu::target("sha,sse4.1")]] void block_by_extensions(Sha256State& state, const uint8_t* block) {
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  __m128i words[4];
  for (int i = 0; i < 4; ++i) {
    const auto* from = reinterpret_cast<const __m128i*>(block + 16 * i);
    words[i] = _mm_shuffle_epi8(_mm_loadu_si128(from), big_endian);
  }
  // The instruction expects the state as (a, b, e, f) and (c, d, g, h), each from the highest lane
  // down.
  const auto lane = [&state](int i) { return static_cast<int>(state[static_cast<size_t>(i)]); };
  const __m128i abef_before = _mm_set_epi32(lane(0), lane(1), lane(4), lane(5));
  const __m128i cdgh_before = _mm_set_epi32(lane(2), lane(3), lane(6), lane(7));
  __m128i abef = abef_before;
  __m128i cdgh = cdgh_before;
  for (size_t round = 0; round < kSha256Round.size(); round += 4) {
    if (round >= 16) {
      const __m128i next = next_words(words);
      for (int i = 0; i < 3; ++i) words[i] = words[i + 1];
      words[3] = next;
    }
    const auto* constants = reinterpret_cast<const __m128i*>(kSha256Round.data() + round);
    const __m128i w = round < 16 ? words[round / 4] : words[3];
    const __m128i sums = _mm_add_epi32(w, _mm_loadu_si128(constants));
    // After two rounds, the old a, b, e, f are the new c, d, g, h.
    cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sums);
    abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sums, 0x0E));
  }
  alignas(16) uint32_t first[4], second[4];
  _mm_store_si128(reinterpret_cast<__m128i*>(first), _mm_add_epi32(abef, abef_before));
  _mm_store_si128(reinterpret_cast<__m128i*>(second), _mm_add_epi32(cdgh, cdgh_before));
  state = {first[3], first[2], second[3], second[2], first[1], first[0], second[1], second[0]};
}

bool has_extensions() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return false;
  const bool has_sse = (ecx & bit_SSSE3) != 0 && (ecx & bit_SSE4_1) != 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  return has_sse && (ebx & bit_SHA) != 0;
}

}  // namespace

Sha256Block sha256_block_native() {
  return has_extensions() ? block_by_extensions : nullptr;
}

}  // namespace lockstep
