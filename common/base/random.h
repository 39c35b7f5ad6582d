#pragma once

#include <array>
#include <cstdint>

namespace lockstep {

// A counter-based generator: the n-th draw is a pure function of (seed, stream, n). Any rank can
// compute any draw, and a checkpoint stores only three numbers. Source: Philox4x32-10, Salmon et
// al., "Parallel random numbers: as easy as 1, 2, 3", SC'11.
class Random {
 public:
  // Streams of one seed are independent. Use one stream per purpose (initialisation, shuffling,
  // ...).
  explicit Random(uint64_t seed, uint64_t stream = 0) : seed_(seed), stream_(stream) {}

  uint32_t next_u32();
  uint64_t next_u64();
  // Uniform in [0, bound), without modulo bias (Lemire 2019); bound > 0.
  uint64_t below(uint64_t bound);
  // Uniform in [0, 1), 24 bits.
  float uniform();
  // Standard normal (Box-Muller on two draws). Keeps no state between calls.
  float normal();

  // Continues after this many 32-bit draws of the whole sequence.
  void seek(uint64_t position) { position_ = position; }

 private:
  uint64_t seed_;
  uint64_t stream_;
  uint64_t position_ = 0;
  uint64_t block_index_ = ~uint64_t{0};  // index of the block cached in block_
  std::array<uint32_t, 4> block_{};
};

// Maps position -> element as a pseudo-random permutation of [0, size). A pure function of the seed
// that needs no table: a Feistel network on the next power of four, cycle-walking back into range.
uint64_t permute(uint64_t position, uint64_t size, uint64_t seed);

}  // namespace lockstep
