#include "kernels/ops/squared_error.h"

#include "kernels/device/cuda/launch.cuh"
#include "kernels/device/cuda/reduce.cuh"
#include "kernels/ops/cuda_ops.h"
#include "kernels/ops/dispatch.cuh"
#include "kernels/ops/geometry.h"

namespace lockstep::kernels::cuda {

namespace {

// One row per block.
template <class T>
__global__ void __launch_bounds__(kBlockRowThreads)
    squares(T* outputs, const float* values, float* losses, int64_t columns, bool gradient,
            float factor) {
  T* row = outputs + int64_t{blockIdx.x} * columns;
  const float* expected = values + int64_t{blockIdx.x} * columns;
  float sum = 0.0f;
  for (int64_t column = threadIdx.x; column < columns; column += blockDim.x) {
    float found[1];
    load_values(found, row + column);
    const float difference = found[0] - expected[column];
    sum += difference * difference;
    if (!gradient) continue;
    found[0] = difference * factor;
    store_values(row + column, found);
  }
  sum = reduce_block(sum, Plus{}, shared_memory<float>());
  if (threadIdx.x == 0) losses[blockIdx.x] = sum;
}

}  // namespace

void squared_error(Stream& stream, const SquaredError& args) {
  const LaunchShape shape =
      block_rows_shape("squared_error", args.rows, args.columns, sizeof(float));
  const float factor = 2.0f * args.gradient_scale;
  dispatch({.dtype = args.outputs.dtype}, [&]<class T, int N>(Pack<T, N>) {
    launch(stream, shape, squares<T>, elements_of<T>(args.outputs), args.values, args.losses,
           args.columns, args.gradient, factor);
  });
}

}  // namespace lockstep::kernels::cuda
