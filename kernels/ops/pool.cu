#include "kernels/ops/pool.h"

#include "kernels/device/cuda/launch.cuh"
#include "kernels/ops/cuda_ops.h"
#include "kernels/ops/dispatch.cuh"
#include "kernels/ops/geometry.h"

namespace lockstep::kernels::cuda {

namespace {

// One output value per thread.
template <class T>
__global__ void __launch_bounds__(kElementThreads)
    forward(const T* x, T* y, int32_t* places, PoolShape s, Pooling kind) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= s.out_count()) return;
  const int64_t c = at % s.channels, pixel = at / s.channels;
  const int64_t q = pixel % s.out_width(), p = pixel / s.out_width() % s.out_height();
  const T* image =
      x + pixel / (s.out_width() * s.out_height()) * s.height * s.width * s.channels + c;
  float best = 0.0f, sum = 0.0f;
  int64_t place = -1, count = 0;
  for (int64_t r = 0; r < s.window_height; ++r) {
    const int64_t h = p * s.stride - s.padding + r;
    if (h < 0 || h >= s.height) continue;
    for (int64_t t = 0; t < s.window_width; ++t) {
      const int64_t w = q * s.stride - s.padding + t;
      if (w < 0 || w >= s.width) continue;
      const float value = to_float(image[(h * s.width + w) * s.channels]);
      sum += value;
      ++count;
      if (place >= 0 && !(value > best) && value == value) continue;
      best = value;
      place = h * s.width + w;
    }
  }
  const float result[1] = {kind == Pooling::kMax ? best : sum / static_cast<float>(count)};
  store_values(y + at, result);
  if (places != nullptr) places[at] = static_cast<int32_t>(place);
}

// One value of dx per thread, which looks at all windows that have its pixel.
template <class T>
__global__ void __launch_bounds__(kElementThreads)
    backward(const T* dy, const int32_t* places, T* dx, PoolShape s, Pooling kind) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= s.in_count()) return;
  const int64_t c = at % s.channels, pixel = at / s.channels;
  const int64_t w = pixel % s.width, h = pixel / s.width % s.height;
  const int64_t n = pixel / (s.width * s.height);
  float sum[1] = {0.0f};
  for (int64_t r = 0; r < s.window_height; ++r) {
    const int64_t down = h + s.padding - r, p = down / s.stride;
    if (down < 0 || down % s.stride != 0 || p >= s.out_height()) continue;
    for (int64_t t = 0; t < s.window_width; ++t) {
      const int64_t right = w + s.padding - t, q = right / s.stride;
      if (right < 0 || right % s.stride != 0 || q >= s.out_width()) continue;
      const int64_t from = ((n * s.out_height() + p) * s.out_width() + q) * s.channels + c;
      const float value = to_float(dy[from]);
      if (kind == Pooling::kAverage) {
        sum[0] += value / static_cast<float>(s.window_height * s.window_width);
      } else if (places[from] == h * s.width + w) {
        sum[0] += value;
      }
    }
  }
  store_values(dx + at, sum);
}

}  // namespace

void pool_forward(Stream& stream, const PoolForward& args) {
  CHECK(args.kind == Pooling::kMax || args.shape.padding == 0);
  dispatch({.dtype = args.y.dtype}, [&]<class T, int N>(Pack<T, N>) {
    launch(stream, elements_shape("pool_forward", args.shape.out_count(), 1), forward<T>,
           elements_of<T>(args.x), elements_of<T>(args.y), args.places, args.shape, args.kind);
  });
}

void pool_backward(Stream& stream, const PoolBackward& args) {
  CHECK(args.kind == Pooling::kMax ? args.places != nullptr : args.shape.padding == 0);
  dispatch({.dtype = args.dx.dtype}, [&]<class T, int N>(Pack<T, N>) {
    launch(stream, elements_shape("pool_backward", args.shape.in_count(), 1), backward<T>,
           elements_of<T>(args.dy), args.places, elements_of<T>(args.dx), args.shape, args.kind);
  });
}

}  // namespace lockstep::kernels::cuda
