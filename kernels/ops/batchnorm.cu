#include "kernels/ops/batchnorm.h"

#include "kernels/device/cuda/launch.cuh"
#include "kernels/device/cuda/reduce.cuh"
#include "kernels/ops/cuda_ops.h"
#include "kernels/ops/dispatch.cuh"
#include "kernels/ops/geometry.h"

namespace lockstep::kernels::cuda {

namespace {

constexpr int64_t kParts = batchnorm_parts(DeviceType::kCuda);

__device__ __forceinline__ float inverse_deviation(float variance, float epsilon) {
  return 1.0f / sqrtf(variance + epsilon);
}

// Blocks (strip of 32 channels, part of the rows): the warps take rows in turn. `of(row, channel,
// two)` returns what is added up. Writes parts[part][2][C].
template <class Of>
__device__ __forceinline__ void sum_part(int64_t rows, int64_t channels, double* parts, Of of) {
  double* shared = shared_memory<double>();  // [warps][2][32]
  const int64_t channel = int64_t{blockIdx.x} * kWarpThreads + lane_index();
  const int64_t end = rows * (blockIdx.y + 1) / kParts;
  double sums[2] = {};
  for (int64_t row = rows * blockIdx.y / kParts + warp_index(); row < end && channel < channels;
       row += kColumnWarps) {
    float two[2];
    of(row * channels + channel, channel, two);
    for (int i = 0; i < 2; ++i) sums[i] += static_cast<double>(two[i]);
  }
  for (int i = 0; i < 2; ++i)
    shared[(warp_index() * 2 + i) * kWarpThreads + lane_index()] = sums[i];
  sync_block();
  if (warp_index() >= 2 || channel >= channels) return;
  double total = 0;
  for (int warp = 0; warp < kColumnWarps; ++warp) {
    total += shared[(warp * 2 + warp_index()) * kWarpThreads + lane_index()];
  }
  parts[(int64_t{blockIdx.y} * 2 + warp_index()) * channels + channel] = total;
}

template <class T>
__global__ void __launch_bounds__(kColumnThreads)
    sum_x(const T* x, const float* shift, double* parts, int64_t rows, int64_t channels) {
  sum_part(rows, channels, parts, [=](int64_t at, int64_t c, float(&two)[2]) {
    two[0] = to_float(x[at]) - shift[c];
    two[1] = two[0] * two[0];
  });
}

struct BackwardPass {
  const float* mean;
  const float* variance;
  float epsilon;
  bool adds_dresidual;
};

template <class T>
__global__ void __launch_bounds__(kColumnThreads)
    sum_gradients(T* dy, const T* y, const T* x, T* dresidual, BackwardPass pass, double* parts,
                  int64_t rows, int64_t channels) {
  sum_part(rows, channels, parts, [=](int64_t at, int64_t c, float(&two)[2]) {
    float d[1] = {to_float(dy[at])};
    if (y != nullptr && to_float(y[at]) <= 0.0f) d[0] = 0.0f;
    if (y != nullptr) store_values(dy + at, d);
    two[0] = d[0];
    two[1] =
        d[0] * (to_float(x[at]) - pass.mean[c]) * inverse_deviation(pass.variance[c], pass.epsilon);
    if (dresidual == nullptr) return;
    if (pass.adds_dresidual) d[0] += to_float(dresidual[at]);
    store_values(dresidual + at, d);
  });
}

// sums[2C+1] from the parts; adds them to the gradients of the parameters, if there are any.
__global__ void __launch_bounds__(kElementThreads)
    add_parts(const double* parts, double* sums, float* dbias, float* dweight, int64_t rows,
              int64_t channels) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at == 0) sums[2 * channels] = static_cast<double>(rows);
  if (at >= 2 * channels) return;
  double sum = 0;
  for (int64_t part = 0; part < kParts; ++part) sum += parts[part * 2 * channels + at];
  sums[at] = sum;
  if (dbias == nullptr) return;
  (at < channels ? dbias[at] : dweight[at - channels]) += static_cast<float>(sum);
}

__global__ void __launch_bounds__(kElementThreads) moments(BatchNormMoments args) {
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= args.channels) return;
  const double rows = args.sums[2 * args.channels];
  const double mean = args.sums[c] / rows;
  const double variance = args.sums[args.channels + c] / rows - mean * mean;
  args.mean[c] = static_cast<float>(static_cast<double>(args.shift[c]) + mean);
  args.variance[c] = variance < 0 ? 0.0f : static_cast<float>(variance);
}

__global__ void __launch_bounds__(kElementThreads) running(BatchNormRunning args) {
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= args.channels) return;
  const double rows = *args.rows;
  const float correction = static_cast<float>(rows > 1 ? rows / (rows - 1) : 1.0);
  args.dmean[c] += args.factor * (args.running_mean[c] - args.mean[c]);
  args.dvariance[c] += args.factor * (args.running_variance[c] - args.variance[c] * correction);
}

template <class T>
__global__ void __launch_bounds__(kElementThreads)
    forward(const T* x, const T* residual, T* y, BatchNormForward args) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= args.rows * args.channels) return;
  const int64_t c = at % args.channels;
  const float factor = args.weight[c] * inverse_deviation(args.variance[c], args.epsilon);
  float v[1] = {(to_float(x[at]) - args.mean[c]) * factor + args.bias[c]};
  if (residual != nullptr) v[0] += to_float(residual[at]);
  if (args.relu && v[0] < 0.0f) v[0] = 0.0f;
  store_values(y + at, v);
}

template <class T>
__global__ void __launch_bounds__(kElementThreads)
    backward(const T* dy, const T* x, T* dx, BatchNormBackward args) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= args.rows * args.channels) return;
  const int64_t c = at % args.channels;
  const double rows = args.sums[2 * args.channels];
  const float factor = inverse_deviation(args.variance[c], args.epsilon);
  const float hat = (to_float(x[at]) - args.mean[c]) * factor;
  const float mean_d = static_cast<float>(args.sums[c] / rows);
  const float mean_d_hat = static_cast<float>(args.sums[args.channels + c] / rows);
  const float v[1] = {args.weight[c] * factor * (to_float(dy[at]) - mean_d - hat * mean_d_hat)};
  store_values(dx + at, v);
}

LaunchShape sums_shape(const char* name, int64_t channels) {
  LaunchShape shape = column_sums_shape(name, channels, kParts, 1, 2);
  shape.shared_bytes *= 2;  // doubles
  return shape;
}

}  // namespace

void batchnorm_sums(Stream& stream, const BatchNormSums& args) {
  CHECK(args.workspace.bytes >= batchnorm_workspace(args.channels, DeviceType::kCuda));
  auto* parts = static_cast<double*>(args.workspace.data);
  dispatch({.dtype = args.x.dtype}, [&]<class T, int N>(Pack<T, N>) {
    launch(stream, sums_shape("batchnorm_sums", args.channels), sum_x<T>, elements_of<T>(args.x),
           args.shift, parts, args.rows, args.channels);
  });
  launch(stream, elements_shape("batchnorm_sums", 2 * args.channels, 1), add_parts, parts,
         args.sums, nullptr, nullptr, args.rows, args.channels);
}

void batchnorm_moments(Stream& stream, const BatchNormMoments& args) {
  launch(stream, elements_shape("batchnorm_moments", args.channels, 1), moments, args);
}

void batchnorm_forward(Stream& stream, const BatchNormForward& args) {
  dispatch({.dtype = args.y.dtype}, [&]<class T, int N>(Pack<T, N>) {
    launch(stream, elements_shape("batchnorm_forward", args.rows * args.channels, 1), forward<T>,
           elements_of<T>(args.x), elements_of<T>(args.residual), elements_of<T>(args.y), args);
  });
}

void batchnorm_backward_sums(Stream& stream, const BatchNormBackwardSums& args) {
  CHECK(args.workspace.bytes >= batchnorm_workspace(args.channels, DeviceType::kCuda));
  auto* parts = static_cast<double*>(args.workspace.data);
  const BackwardPass pass{args.mean, args.variance, args.epsilon, args.adds_dresidual};
  dispatch({.dtype = args.dy.dtype}, [&]<class T, int N>(Pack<T, N>) {
    launch(stream, sums_shape("batchnorm_backward_sums", args.channels), sum_gradients<T>,
           elements_of<T>(args.dy), elements_of<T>(args.y), elements_of<T>(args.x),
           elements_of<T>(args.dresidual), pass, parts, args.rows, args.channels);
  });
  launch(stream, elements_shape("batchnorm_backward_sums", 2 * args.channels, 1), add_parts, parts,
         args.sums, args.dbias, args.dweight, args.rows, args.channels);
}

void batchnorm_backward(Stream& stream, const BatchNormBackward& args) {
  dispatch({.dtype = args.dx.dtype}, [&]<class T, int N>(Pack<T, N>) {
    launch(stream, elements_shape("batchnorm_backward", args.rows * args.channels, 1), backward<T>,
           elements_of<T>(args.dy), elements_of<T>(args.x), elements_of<T>(args.dx), args);
  });
}

void batchnorm_running(Stream& stream, const BatchNormRunning& args) {
  launch(stream, elements_shape("batchnorm_running", args.channels, 1), running, args);
}

}  // namespace lockstep::kernels::cuda
