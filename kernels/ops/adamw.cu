#include "kernels/ops/adamw.h"

#include <algorithm>
#include <cmath>

#include "kernels/device/cuda/launch.cuh"
#include "kernels/ops/cuda_ops.h"
#include "kernels/ops/dispatch.cuh"
#include "kernels/ops/geometry.h"
#include "kernels/ops/rounding.h"
#include "kernels/ops/tensor_batch.h"

namespace lockstep::kernels::cuda {

namespace {

struct Tensor {
  float* parameter;
  const float* gradient;
  float* m;
  float* v;
  void* copy;
  int64_t count;
  int64_t first;  // index of its first element across all tensors
  float weight_decay;
  bool copy_is_bf16;
  bool is_wide;  // all pointers are multiples of 16 bytes
};

struct Settings {
  float learning_rate;
  float beta1;
  float beta2;
  float epsilon;
  float gradient_scale;
  float step_size;     // lr / (1 - b1^step)
  float v_correction;  // 1 / (1 - b2^step)
  const float* device_scale;
  uint64_t key;
  bool rounds_stochastically;
};

// Close to the limit of a kernel's arguments.
constexpr int kTensorsMax = 400;
struct Batch {
  Settings settings;
  TensorBatch<Tensor, kTensorsMax> tensors;
};

constexpr int kPack = 4;
constexpr int64_t kBlockElements = 2048;

template <int N>
__device__ __forceinline__ void write_copy(const Settings& s, const Tensor& t, int64_t at,
                                           const float (&values)[N]) {
  if (!t.copy_is_bf16) {
    store_values(static_cast<float*>(t.copy) + at, values);
    return;
  }
  Bf16* copy = static_cast<Bf16*>(t.copy) + at;
  if (!s.rounds_stochastically) {
    store_values(copy, values);
    return;
  }
  // Rounded values are exact in bf16, so storing them does not round again.
  float rounded[N];
  for (int i = 0; i < N; ++i) {
    const uint64_t random = mixed_bits(s.key + static_cast<uint64_t>(t.first + at + i));
    const uint32_t bits = round_stochastically(bits_of_float(values[i]), random);
    rounded[i] = float_of_bits(bits << 16);
  }
  store_values(copy, rounded);
}

template <int N>
__device__ __forceinline__ void update(const Settings& s, float scale, const Tensor& t,
                                       int64_t at) {
  float g[N], m[N], v[N], p[N];
  load_values(g, t.gradient + at);
  load_values(m, t.m + at);
  load_values(v, t.v + at);
  load_values(p, t.parameter + at);
  const float decay = s.learning_rate * t.weight_decay;
  for (int i = 0; i < N; ++i) {
    g[i] *= scale;
    m[i] = m[i] * s.beta1 + g[i] * (1.0f - s.beta1);
    v[i] = v[i] * s.beta2 + g[i] * g[i] * (1.0f - s.beta2);
    p[i] = p[i] - p[i] * decay - m[i] * s.step_size / (sqrtf(v[i] * s.v_correction) + s.epsilon);
  }
  store_values(t.m + at, m);
  store_values(t.v + at, v);
  store_values(t.parameter + at, p);
  if (t.copy) write_copy(s, t, at, p);
}

__global__ void __launch_bounds__(kBatchThreads) adamw_step(const Batch __grid_constant__ batch) {
  const Settings& s = batch.settings;
  const float scale = s.device_scale ? s.gradient_scale * *s.device_scale : s.gradient_scale;
  if (s.device_scale && !(scale - scale == 0.0f)) return;
  const BatchPlace place = find_tensor(batch.tensors, blockIdx.x);
  const Tensor& t = batch.tensors.tensors[place.tensor];
  const int64_t begin = place.block * kBlockElements;
  const int64_t end = begin + kBlockElements < t.count ? begin + kBlockElements : t.count;
  const int64_t step = int64_t{blockDim.x} * kPack;
  for (int64_t at = begin + int64_t{threadIdx.x} * kPack; at < end; at += step) {
    if (t.is_wide && at + kPack <= end) {
      update<kPack>(s, scale, t, at);
    } else {
      for (int64_t i = at; i < at + kPack && i < end; ++i) update<1>(s, scale, t, i);
    }
  }
}

Settings settings_of(const AdamW& args) {
  const double step = static_cast<double>(args.step);
  const double first = 1.0 - std::pow(static_cast<double>(args.beta1), step);
  const double second = 1.0 - std::pow(static_cast<double>(args.beta2), step);
  return {.learning_rate = args.learning_rate,
          .beta1 = args.beta1,
          .beta2 = args.beta2,
          .epsilon = args.epsilon,
          .gradient_scale = args.gradient_scale,
          .step_size = static_cast<float>(static_cast<double>(args.learning_rate) / first),
          .v_correction = static_cast<float>(1.0 / second),
          .device_scale = args.device_scale,
          .key = rounding_key(args.rounding_seed, args.step),
          .rounds_stochastically = args.rounding_seed != 0};
}

Tensor tensor_of(const AdamWTensor& t, int64_t first) {
  const PackedRows rows{.begins = {t.parameter, t.gradient, t.m, t.v, t.copy.data}};
  return {.parameter = t.parameter,
          .gradient = t.gradient,
          .m = t.m,
          .v = t.v,
          .copy = t.copy.data,
          .count = t.count,
          .first = first,
          .weight_decay = t.weight_decay,
          .copy_is_bf16 = t.copy.dtype == DType::kBf16,
          .is_wide = fills_packs(rows)};
}

}  // namespace

void adamw(Stream& stream, const AdamW& args) {
  CHECK(args.step >= 1);
  Batch batch = {.settings = settings_of(args), .tensors = {}};
  const auto start = [&] {
    launch(stream, batch_shape("adamw", batch.tensors), adamw_step, batch);
    batch.tensors = {};
  };
  int64_t first = 0;
  for (const AdamWTensor& tensor : args.tensors) {
    if (is_full(batch.tensors)) start();
    append(batch.tensors, tensor_of(tensor, first), ceil_divided(tensor.count, kBlockElements));
    first += tensor.count;
  }
  start();
}

}  // namespace lockstep::kernels::cuda
