// Ops that compute a single number.
#include "kernels/device/cuda/launch.cuh"
#include "kernels/device/cuda/reduce.cuh"
#include "kernels/ops/cuda_ops.h"

namespace lockstep::kernels::cuda {

namespace {

constexpr int kThreads = 512;

// One block: adds the sum of the losses to *sum.
__global__ void __launch_bounds__(kThreads)
    add_losses(const float* losses, int64_t count, double* sum) {
  double own = 0.0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) own += static_cast<double>(losses[i]);
  own = reduce_block(own, Plus{}, shared_memory<double>());
  if (threadIdx.x == 0) *sum += own;
}

__global__ void __launch_bounds__(kWarpThreads) scale_of_norm(ClipScale args) {
  if (threadIdx.x > 0) return;
  const double norm = sqrt(value_of(*args.squares));
  *args.scale = clip_factor(norm, args.clip_norm);
  if (args.norm) *args.norm = static_cast<float>(norm);
}

__global__ void __launch_bounds__(kWarpThreads) inverse_of_norm(InverseNorm args) {
  if (threadIdx.x > 0) return;
  *args.factor = static_cast<float>(1.0 / (sqrt(value_of(*args.squares)) + args.epsilon));
}

}  // namespace

void clip_scale(Stream& stream, const ClipScale& args) {
  launch(stream, {.name = "clip_scale", .threads = kWarpThreads}, scale_of_norm, args);
}

void inverse_norm(Stream& stream, const InverseNorm& args) {
  launch(stream, {.name = "inverse_norm", .threads = kWarpThreads}, inverse_of_norm, args);
}

void loss_sum(Stream& stream, const LossSum& args) {
  launch(stream,
         {.name = "loss_sum",
          .threads = kThreads,
          .shared_bytes = kThreads / kWarpThreads * sizeof(double)},
         add_losses, args.losses, args.count, args.sum);
}

}  // namespace lockstep::kernels::cuda
