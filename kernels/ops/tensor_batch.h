#pragma once

#include <cstdint>

#include "kernels/device/launch_shape.h"

// Many tensors in one launch: the kernel arguments contain the tensors and the first block of each.
// Pure, for host and device.
namespace lockstep::kernels {

template <class Tensor, int kCapacity>
struct TensorBatch {
  Tensor tensors[kCapacity];
  int32_t first_blocks[kCapacity];
  int32_t count = 0;
  int32_t blocks = 0;
};

template <class Tensor, int kCapacity>
constexpr bool is_full(const TensorBatch<Tensor, kCapacity>& batch) {
  return batch.count == kCapacity;
}

// The total number of blocks must be below 2^31.
template <class Tensor, int kCapacity>
constexpr void append(TensorBatch<Tensor, kCapacity>& batch, const Tensor& tensor, int64_t blocks) {
  if (blocks == 0) return;
  batch.tensors[batch.count] = tensor;
  batch.first_blocks[batch.count] = batch.blocks;
  ++batch.count;
  batch.blocks += static_cast<int32_t>(blocks);
}

struct BatchPlace {
  int32_t tensor = 0;
  int64_t block = 0;  // index among this tensor's blocks
};

// Returns the tensor of a block: the last one whose first block is not after it.
template <class Tensor, int kCapacity>
constexpr BatchPlace find_tensor(const TensorBatch<Tensor, kCapacity>& batch, int64_t block) {
  int32_t low = 0, high = batch.count;
  while (high - low > 1) {
    const int32_t middle = (low + high) / 2;
    if (batch.first_blocks[middle] <= block) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return {low, block - batch.first_blocks[low]};
}

inline constexpr int kBatchThreads = 256;
template <class Tensor, int kCapacity>
constexpr LaunchShape batch_shape(const char* name, const TensorBatch<Tensor, kCapacity>& batch) {
  return {.name = name, .blocks = {.x = batch.blocks}, .threads = kBatchThreads};
}

}  // namespace lockstep::kernels
