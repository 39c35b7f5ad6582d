// Ops that compute a single number.
#include <algorithm>

#include "kernels/device/cuda/launch.cuh"
#include "kernels/device/cuda/reduce.cuh"
#include "kernels/ops/cuda_ops.h"
#include "kernels/ops/dispatch.cuh"
#include "kernels/ops/geometry.h"
#include "kernels/ops/tensor_batch.h"

namespace lockstep::kernels::cuda {

namespace {

constexpr int64_t kChunk = 16384;
constexpr int kSlots = kSquaredNormWorkspace / sizeof(double);
constexpr int kThreads = 512;
constexpr int kTensorsMax = 1024;

struct Tensor {
  const float* data;
  int64_t count;
};
using Batch = TensorBatch<Tensor, kTensorsMax>;

template <int N>
__device__ __forceinline__ double squares_of(const float* from) {
  float values[N];
  load_values(values, from);
  double sum = 0.0;
  for (const float v : values) sum += static_cast<double>(v) * static_cast<double>(v);
  return sum;
}

// Chunks are numbered across the tensors of a launch. Block s of n adds chunks s, s + n, ... to its
// slot; the first launch sets the slot.
__global__ void __launch_bounds__(kThreads)
    sum_squares(const Batch __grid_constant__ batch, double* slots, bool is_first) {
  double sum = 0.0;
  for (int64_t chunk = blockIdx.x; chunk < batch.blocks; chunk += gridDim.x) {
    const BatchPlace place = find_tensor(batch, chunk);
    const Tensor& t = batch.tensors[place.tensor];
    const int64_t begin = place.block * kChunk;
    const int64_t end = begin + kChunk < t.count ? begin + kChunk : t.count;
    const bool is_wide = reinterpret_cast<uintptr_t>(t.data) % 16 == 0;
    const int64_t step = int64_t{blockDim.x} * 4;
    for (int64_t at = begin + int64_t{threadIdx.x} * 4; at < end; at += step) {
      if (is_wide && at + 4 <= end) {
        sum += squares_of<4>(t.data + at);
      } else {
        for (int64_t i = at; i < at + 4 && i < end; ++i) sum += squares_of<1>(t.data + i);
      }
    }
  }
  sum = reduce_block(sum, Plus{}, shared_memory<double>());
  if (threadIdx.x == 0) slots[blockIdx.x] = is_first ? sum : slots[blockIdx.x] + sum;
}

// One block: sets *sum to the sum of count values, or adds it to *sum.
template <class T>
__global__ void __launch_bounds__(kThreads)
    sum_all(const T* values, int64_t count, double* sum, bool adds) {
  double own = 0.0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) own += static_cast<double>(values[i]);
  own = reduce_block(own, Plus{}, shared_memory<double>());
  if (threadIdx.x == 0) *sum = adds ? *sum + own : own;
}

__global__ void __launch_bounds__(kWarpThreads) scale_of_norm(ClipScale args) {
  if (threadIdx.x > 0) return;
  double squares = 0.0;
  for (int64_t i = 0; i < args.count; ++i) squares += args.squares[i];
  const double norm = sqrt(squares);
  *args.scale = clip_factor(norm, args.clip_norm);
  if (args.norm) *args.norm = static_cast<float>(norm);
}

LaunchShape sum_shape(const char* name, int64_t blocks) {
  return {.name = name,
          .blocks = {.x = blocks},
          .threads = kThreads,
          .shared_bytes = kThreads / kWarpThreads * sizeof(double)};
}

}  // namespace

void squared_norm(Stream& stream, const SquaredNorm& args) {
  CHECK(args.workspace.bytes >= kSquaredNormWorkspace);
  double* slots = static_cast<double*>(args.workspace.data);
  int64_t chunks = 0;
  for (const FlatTensor& tensor : args.tensors) chunks += ceil_divided(tensor.count, kChunk);
  const int64_t used = std::clamp<int64_t>(chunks, 1, kSlots);
  Batch batch = {};
  bool is_first = true;
  const auto start = [&] {
    launch(stream, sum_shape("squared_norm", used), sum_squares, batch, slots, is_first);
    is_first = false;
    batch = {};
  };
  for (const FlatTensor& tensor : args.tensors) {
    if (is_full(batch)) start();
    append(batch, {tensor.data, tensor.count}, ceil_divided(tensor.count, kChunk));
  }
  start();
  launch(stream, sum_shape("squared_norm_sum", 1), sum_all<double>,
         static_cast<const double*>(slots), used, args.sum, false);
}

void clip_scale(Stream& stream, const ClipScale& args) {
  launch(stream, {.name = "clip_scale", .threads = kWarpThreads}, scale_of_norm, args);
}

void loss_sum(Stream& stream, const LossSum& args) {
  launch(stream, sum_shape("loss_sum", 1), sum_all<float>, args.losses, args.count, args.sum, true);
}

}  // namespace lockstep::kernels::cuda
