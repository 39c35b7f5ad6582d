// The exchanges between lanes of a warp: shuffles, ballots and matrix products.
#include "tests/support/emulated_cuda/stand_in/kernels/device/cuda/intrinsics.cuh"

namespace lockstep::kernels::cuda {

namespace {

using emulated_cuda::WarpRequest;
using Lanes = WarpRequest* const[kWarpThreads];

template <class In, class Out>
void exchange(const In& in, Out* out, void (*combine)(Lanes& lanes), Site at) {
  WarpRequest request{.combine = combine, .mask = kAllLanes, .in = &in, .out = out, .at = at};
  emulated_cuda::exchange_in_warp(request);
}

template <class In>
const In& in_of(const WarpRequest* lane) {
  return *static_cast<const In*>(lane->in);
}

void combine_shuffle(Lanes& lanes) {
  for (const WarpRequest* lane : lanes) {
    const auto& request = in_of<ShuffleRequest>(lane);
    if (request.from < 0 || request.from >= kWarpThreads) continue;
    std::memcpy(lane->out, in_of<ShuffleRequest>(lanes[request.from]).value, request.bytes);
  }
}

void combine_ballot(Lanes& lanes) {
  uint32_t bits = 0;
  for (int i = 0; i < kWarpThreads; ++i) bits |= uint32_t{in_of<bool>(lanes[i])} << i;
  for (const WarpRequest* lane : lanes) *static_cast<uint32_t*>(lane->out) = bits;
}

// Returns element (row, column) of the i-th of four matrices; lane 8 i + row gave the row's
// address.
uint32_t element_of(Lanes& lanes, int i, int row, int column) {
  uint16_t element = 0;
  const auto* from = static_cast<const char*>(in_of<const void*>(lanes[8 * i + row]));
  std::memcpy(&element, from + 2 * column, sizeof element);
  return element;
}

template <bool kTransposed>
void combine_load(Lanes& lanes) {
  for (int lane = 0; lane < kWarpThreads; ++lane) {
    auto* registers = static_cast<uint32_t*>(lanes[lane]->out);
    const int first = lane / 4, second = lane % 4 * 2;
    for (int i = 0; i < 4; ++i) {
      const uint32_t low =
          kTransposed ? element_of(lanes, i, second, first) : element_of(lanes, i, first, second);
      const uint32_t high = kTransposed ? element_of(lanes, i, second + 1, first)
                                        : element_of(lanes, i, first, second + 1);
      registers[i] = low | high << 16;
    }
  }
}

struct Factors {
  const uint32_t* a;
  const uint32_t* b;
};

float half_of(uint32_t pair, int half) {
  return float_of_bits((pair >> (16 * half)) << 16);
}

// Elements of a[16,16] and b[16,8] are in lane 4 g + t, at a register and half.
float a_at(Lanes& lanes, int row, int k) {
  const int lane = row % 8 * 4 + k % 8 / 2;
  return half_of(in_of<Factors>(lanes[lane]).a[row / 8 + k / 8 * 2], k % 2);
}
float b_at(Lanes& lanes, int k, int column) {
  const int lane = column * 4 + k % 8 / 2;
  return half_of(in_of<Factors>(lanes[lane]).b[k / 8], k % 2);
}

void combine_multiply(Lanes& lanes) {
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      auto* sums = static_cast<float*>(lanes[row % 8 * 4 + column / 2]->out);
      float& sum = sums[row / 8 * 2 + column % 2];
      for (int k = 0; k < 16; ++k) sum += a_at(lanes, row, k) * b_at(lanes, k, column);
    }
  }
}

}  // namespace

void sync_warp(Site at) {
  const bool here = true;
  uint32_t lanes = 0;
  exchange(here, &lanes, combine_ballot, at);
}

void shuffle_bytes(const ShuffleRequest& request, void* out, Site at) {
  exchange(request, out, combine_shuffle, at);
}

uint32_t ballot(bool predicate, Site at) {
  uint32_t bits = 0;
  exchange(predicate, &bits, combine_ballot, at);
  return bits;
}

void load_matrices(uint32_t (&registers)[4], const void* row, Site at) {
  expect_aligned(row, 16, at);
  exchange(row, registers, combine_load<false>, at);
}

void load_matrices_transposed(uint32_t (&registers)[4], const void* row, Site at) {
  expect_aligned(row, 16, at);
  exchange(row, registers, combine_load<true>, at);
}

void multiply_add(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], Site at) {
  exchange(Factors{a, b}, sum, combine_multiply, at);
}

}  // namespace lockstep::kernels::cuda
