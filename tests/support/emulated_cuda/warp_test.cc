// Checks shuffles, ballots and matrix instructions against the PTX ISA.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "kernels/device/cuda/intrinsics.cuh"
#include "kernels/device/cuda/launch.cuh"
#include "tests/support/emulated_cuda/devices.h"

namespace lockstep::kernels::cuda {

namespace {

void run(const LaunchShape& shape, auto kernel, auto... arguments) {
  Result<Stream> stream = Stream::create({DeviceType::kCuda, 0});
  ASSERT_TRUE(stream.ok());
  launch(*stream, shape, kernel, arguments...);
  const Status status = stream->synchronize();
  ASSERT_TRUE(status.ok()) << status.error().message;
}

struct Shuffled {
  int by_xor, up;
  uint32_t odd;
};

// Runs two warps, which must not affect each other.
__global__ void shuffle_all(Shuffled* out) {
  const int value = static_cast<int>(threadIdx.x * 10);
  Shuffled& mine = out[threadIdx.x];
  for (int turn = 0; turn < 5; ++turn) {
    mine.by_xor = shuffle_xor(value, 5);
    mine.up = shuffle_up(value, 3);
    mine.odd = ballot(threadIdx.x % 2 == 1);
  }
}

TEST(Warp, ShufflesAndBallots) {
  std::array<Shuffled, 64> out = {};
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    emulated_cuda::set_seed(seed);
    run({.name = "shuffle_all", .threads = 64}, shuffle_all, out.data());
    for (int i = 0; i < 64; ++i) {
      const Shuffled& got = out[static_cast<size_t>(i)];
      const int warp = i / 32 * 32, lane = i % 32;
      EXPECT_EQ(got.by_xor, (warp + (lane ^ 5)) * 10);
      EXPECT_EQ(got.up, (lane < 3 ? i : i - 3) * 10);
      EXPECT_EQ(got.odd, 0xAAAAAAAAu);
    }
  }
}

__global__ void convert(const float* from, uint16_t* single, uint32_t* pair) {
  single[threadIdx.x] = to_bf16(from[threadIdx.x]).bits;
  pair[threadIdx.x] = to_bf16_pair(from[threadIdx.x], from[31 - threadIdx.x]);
}

TEST(Warp, RoundsToNearestEvenBf16) {
  std::vector<float> from(32, 1.0f);
  from[1] = 1.0f + 0x1p-8f;      // halfway, the lower one is even
  from[2] = 1.0f + 3 * 0x1p-8f;  // halfway, the upper one is even
  from[3] = -3.4e38f;
  std::vector<uint16_t> single(32);
  std::vector<uint32_t> pair(32);
  run({.name = "convert", .threads = 32}, convert, from.data(), single.data(), pair.data());
  EXPECT_EQ(single[0], 0x3F80);
  EXPECT_EQ(single[1], 0x3F80);
  EXPECT_EQ(single[2], 0x3F82);
  EXPECT_EQ(single[3], 0xFF80);
  EXPECT_EQ(pair[29], 0x3F823F80u);
}

// Loads a [32,8] matrix, whose elements are their own index, as four matrices one below the other.
template <bool kTransposed>
__global__ void load_all(uint32_t* out) {
  uint16_t* shared = shared_memory<uint16_t>();
  for (int i = 0; i < 8; ++i) {
    shared[8 * threadIdx.x + static_cast<unsigned>(i)] =
        static_cast<uint16_t>(8 * threadIdx.x + static_cast<unsigned>(i));
  }
  sync_warp();
  uint32_t registers[4];
  if (kTransposed) {
    load_matrices_transposed(registers, shared + 8 * threadIdx.x);
  } else {
    load_matrices(registers, shared + 8 * threadIdx.x);
  }
  for (unsigned i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = registers[i];
}

TEST(Warp, LoadsMatricesInTheirLayout) {
  std::array<uint32_t, 128> plain = {}, transposed = {};
  const LaunchShape shape{.name = "load_all", .threads = 32, .shared_bytes = 512};
  run(shape, load_all<false>, plain.data());
  run(shape, load_all<true>, transposed.data());
  for (uint32_t lane = 0; lane < 32; ++lane) {
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t first = 64 * i, row = lane / 4, column = lane % 4 * 2;
      EXPECT_EQ(plain[4 * lane + i], (first + 8 * row + column) | (first + 8 * row + column + 1)
                                                                      << 16);
      EXPECT_EQ(transposed[4 * lane + i],
                (first + 8 * column + row) | (first + 8 * (column + 1) + row) << 16);
    }
  }
}

// a[16,16] and b[16,8] of small integers, which are exact in bf16, placed into registers as in the
// PTX ISA.
float a_of(int row, int k) {
  return static_cast<float>((row * 5 + k * 3) % 13 - 6);
}
float b_of(int k, int column) {
  return static_cast<float>((k * 7 + column * 2) % 11 - 5);
}

__global__ void multiply(float* out) {
  const int g = static_cast<int>(threadIdx.x) / 4, t = static_cast<int>(threadIdx.x) % 4;
  const uint32_t a[4] = {to_bf16_pair(a_of(g, 2 * t), a_of(g, 2 * t + 1)),
                         to_bf16_pair(a_of(g + 8, 2 * t), a_of(g + 8, 2 * t + 1)),
                         to_bf16_pair(a_of(g, 2 * t + 8), a_of(g, 2 * t + 9)),
                         to_bf16_pair(a_of(g + 8, 2 * t + 8), a_of(g + 8, 2 * t + 9))};
  const uint32_t b[2] = {to_bf16_pair(b_of(2 * t, g), b_of(2 * t + 1, g)),
                         to_bf16_pair(b_of(2 * t + 8, g), b_of(2 * t + 9, g))};
  float sum[4] = {0.5f, 0.5f, 0.5f, 0.5f};
  multiply_add(sum, a, b);
  for (int i = 0; i < 4; ++i) out[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sum[i];
}

TEST(Warp, MultipliesMatricesInTheirLayout) {
  std::array<float, 128> out = {};
  run({.name = "multiply", .threads = 32}, multiply, out.data());
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      float want = 0.5f;
      for (int k = 0; k < 16; ++k) want += a_of(row, k) * b_of(k, column);
      EXPECT_EQ(out[static_cast<size_t>(row * 8 + column)], want) << row << " " << column;
    }
  }
}

}  // namespace

}  // namespace lockstep::kernels::cuda
