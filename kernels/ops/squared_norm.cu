#include "kernels/ops/squared_norm.h"

#include <algorithm>

#include "kernels/device/cuda/launch.cuh"
#include "kernels/device/cuda/reduce.cuh"
#include "kernels/ops/cuda_ops.h"
#include "kernels/ops/dispatch.cuh"
#include "kernels/ops/geometry.h"
#include "kernels/ops/tensor_batch.h"

namespace lockstep::kernels::cuda {

namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarpThreads;
constexpr int kPack = 4;
constexpr int kPacks = 8;  // of a thread in a chunk
constexpr int64_t kChunk = int64_t{kThreads} * kPack * kPacks;
constexpr int kBlocksMax = 1024;
constexpr int kTensorsMax = 1024;

struct Tensor {
  const float* data;
  int64_t count;
};
using Batch = TensorBatch<Tensor, kTensorsMax>;

struct LargerBits {
  __device__ uint32_t operator()(uint32_t a, uint32_t b) const { return a > b ? a : b; }
};

// A thread's numbers of a chunk; zeroes where the chunk has none.
__device__ __forceinline__ void load_chunk(const Tensor& t, int64_t chunk,
                                           float (&values)[kPacks][kPack]) {
  const bool is_wide = reinterpret_cast<uintptr_t>(t.data) % 16 == 0;
  for (int pack = 0; pack < kPacks; ++pack) {
    const int64_t at =
        chunk * kChunk + (int64_t{pack} * kThreads + static_cast<int64_t>(threadIdx.x)) * kPack;
    if (is_wide && at + kPack <= t.count) {
      load_values(values[pack], t.data + at);
    } else {
      for (int i = 0; i < kPack; ++i) {
        values[pack][i] = at + i < t.count ? t.data[at + i] : 0.0f;
      }
    }
  }
}

__device__ __forceinline__ uint32_t largest_bits(const float (&values)[kPacks][kPack]) {
  uint32_t largest = 0;
  for (int pack = 0; pack < kPacks; ++pack) {
    for (const float v : values[pack]) {
      largest = LargerBits()(largest, bits_of_float(v) & 0x7FFFFFFFu);
    }
  }
  return largest;
}

// Adds a chunk to *sum, in shared memory, by the block's first thread.
__device__ __forceinline__ void add_chunk(const float (&values)[kPacks][kPack], int64_t* shared,
                                          SquareSum* sum) {
  const uint32_t largest =
      reduce_block(largest_bits(values), LargerBits{}, reinterpret_cast<uint32_t*>(shared));
  if (largest == 0) return;
  if (largest >= 0x7F800000u) {
    if (threadIdx.x == 0) add_not_finite(*sum, largest);
    return;
  }
  const SquareGrid grid = square_grid(largest);
  const double second_shift = grid.shift * kSecondUnit;
  // 32 digits of up to 47 bits: exact.
  double first = 0.0, second = 0.0;
  for (int pack = 0; pack < kPacks; ++pack) {
    for (const float v : values[pack]) {
      const double square = static_cast<double>(v) * static_cast<double>(v);
      const double digit = (square + grid.shift) - grid.shift;
      first += digit;
      second += (square - digit + second_shift) - second_shift;
    }
  }
  const double units = 1.0 / grid.unit;  // a power of two
  const int64_t of_first = reduce_block(static_cast<int64_t>(first * units), Plus{}, shared);
  const int64_t of_second =
      reduce_block(static_cast<int64_t>(second * units * (1.0 / kSecondUnit)), Plus{}, shared);
  if (threadIdx.x == 0) {
    add_digits(*sum, grid.place, of_first);
    add_digits(*sum, grid.place - 1, of_second);
  }
}

// Chunks are numbered across the tensors of a launch. Block b of n adds chunks b, b + n, ...
__global__ void __launch_bounds__(kThreads)
    sum_squares(const Batch __grid_constant__ batch, SquareSum* sum) {
  int64_t* shared = shared_memory<int64_t>();
  int64_t* words = shared + kWarps;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kSquareWords) words[thread] = 0;
  sync_block();
  for (int64_t chunk = blockIdx.x; chunk < batch.blocks; chunk += gridDim.x) {
    const BatchPlace place = find_tensor(batch, chunk);
    float values[kPacks][kPack];
    load_chunk(batch.tensors[place.tensor], place.block, values);
    add_chunk(values, shared, reinterpret_cast<SquareSum*>(words));
  }
  sync_block();
  if (thread < kSquareWords && words[thread] != 0) {
    atomic_add(reinterpret_cast<int64_t*>(sum) + thread, words[thread]);
  }
}

}  // namespace

void squared_norm(Stream& stream, const SquaredNorm& args) {
  Batch batch = {};
  const auto start = [&] {
    launch(stream,
           {.name = "squared_norm",
            .blocks = {.x = std::min<int64_t>(batch.blocks, kBlocksMax)},
            .threads = kThreads,
            .shared_bytes = (kWarps + kSquareWords) * sizeof(int64_t)},
           sum_squares, batch, args.sum);
    batch = {};
  };
  for (const FlatTensor& tensor : args.tensors) {
    if (is_full(batch)) start();
    append(batch, {tensor.data, tensor.count}, ceil_divided(tensor.count, kChunk));
  }
  start();
}

}  // namespace lockstep::kernels::cuda
