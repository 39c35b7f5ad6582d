#pragma once

#include "kernels/device/cuda/launch.cuh"
#include "kernels/ops/dispatch.cuh"
#include "kernels/ops/geometry.h"
#include "kernels/ops/parameter_update.h"
#include "kernels/ops/rounding.h"
#include "kernels/ops/tensor_batch.h"

// The kernel that the optimizer ops share. A `Rule` is an op's settings, with
// - kStates: how many states its tensors have
// - update(g, weight_decay, p, states): changes one element, given its scaled gradient
namespace lockstep::kernels::cuda {

struct UpdateTensor {
  float* parameter;
  const float* gradient;
  float* states[kOwnStatesMax];
  float* average;  // or null
  void* copy;
  int64_t count;
  ElementIndex index;
  float weight_decay;  // or with is_plain the rate of UpdatedTensor::plain_rate
  bool is_plain;
  bool copy_is_bf16;
  bool is_wide;  // all pointers are multiples of 16 bytes
};

struct UpdateSettings {
  float gradient_scale;
  const float* device_scale;
  float average_rate;
  uint64_t key;
  bool rounds_stochastically;
};

// Close to the limit of a kernel's arguments.
inline constexpr int kUpdateTensorsMax = 340;
template <class Rule>
struct UpdateBatch {
  Rule rule;
  UpdateSettings settings;
  TensorBatch<UpdateTensor, kUpdateTensorsMax> tensors;
};

inline constexpr int kUpdatePack = 4;
inline constexpr int64_t kUpdateBlockElements = 2048;

template <int N>
__device__ __forceinline__ void write_copy(const UpdateSettings& s, const UpdateTensor& t,
                                           int64_t at, const float (&values)[N]) {
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
    const uint64_t random = mixed_bits(s.key + static_cast<uint64_t>(index_of(t.index, at + i)));
    const uint32_t bits = round_stochastically(bits_of_float(values[i]), random);
    rounded[i] = float_of_bits(bits << 16);
  }
  store_values(copy, rounded);
}

template <int N, class Rule>
__device__ __forceinline__ void update_elements(const UpdateBatch<Rule>& batch, float scale,
                                                const UpdateTensor& t, int64_t at) {
  float g[N], p[N], states[kOwnStatesMax][N];
  load_values(g, t.gradient + at);
  load_values(p, t.parameter + at);
  for (int k = 0; k < Rule::kStates; ++k) load_values(states[k], t.states[k] + at);
  for (int i = 0; i < N; ++i) {
    float of_element[kOwnStatesMax];
    for (int k = 0; k < Rule::kStates; ++k) of_element[k] = states[k][i];
    if (t.is_plain) {
      p[i] -= g[i] * t.weight_decay;
    } else {
      batch.rule.update(g[i] * scale, t.weight_decay, p[i], of_element);
    }
    for (int k = 0; k < Rule::kStates; ++k) states[k][i] = of_element[k];
  }
  for (int k = 0; k < Rule::kStates; ++k) store_values(t.states[k] + at, states[k]);
  store_values(t.parameter + at, p);
  if (t.average) {
    float average[N];
    load_values(average, t.average + at);
    for (int i = 0; i < N; ++i) average[i] += (p[i] - average[i]) * batch.settings.average_rate;
    store_values(t.average + at, average);
  }
  if (t.copy) write_copy(batch.settings, t, at, p);
}

template <class Rule>
__global__ void __launch_bounds__(kBatchThreads)
    update_step(const UpdateBatch<Rule> __grid_constant__ batch) {
  const UpdateSettings& s = batch.settings;
  const float scale = s.device_scale ? s.gradient_scale * *s.device_scale : s.gradient_scale;
  if (s.device_scale && !(scale - scale == 0.0f)) return;
  const BatchPlace place = find_tensor(batch.tensors, blockIdx.x);
  const UpdateTensor& t = batch.tensors.tensors[place.tensor];
  const int64_t begin = place.block * kUpdateBlockElements;
  const int64_t end =
      begin + kUpdateBlockElements < t.count ? begin + kUpdateBlockElements : t.count;
  const int64_t step = int64_t{blockDim.x} * kUpdatePack;
  for (int64_t at = begin + int64_t{threadIdx.x} * kUpdatePack; at < end; at += step) {
    if (t.is_wide && at + kUpdatePack <= end) {
      update_elements<kUpdatePack>(batch, scale, t, at);
    } else {
      for (int64_t i = at; i < at + kUpdatePack && i < end; ++i) {
        update_elements<1>(batch, scale, t, i);
      }
    }
  }
}

inline UpdateTensor update_tensor(const UpdatedTensor& t, int average_state) {
  float* average = average_state < 0 ? nullptr : t.states[average_state];
  const PackedRows rows{
      .begins = {t.parameter, t.gradient, t.states[0], t.states[1], average, t.copy.data}};
  return {.parameter = t.parameter,
          .gradient = t.gradient,
          .states = {t.states[0], t.states[1]},
          .average = average,
          .copy = t.copy.data,
          .count = t.count,
          .index = t.index,
          .weight_decay = t.plain_rate > 0.0f ? t.plain_rate : t.weight_decay,
          .is_plain = t.plain_rate > 0.0f,
          .copy_is_bf16 = t.copy.dtype == DType::kBf16,
          .is_wide = fills_packs(rows)};
}

// `Args` is AdamW, Sgd, Adagrad or Ftrl. `name` is for errors.
template <class Rule, class Args>
void update_tensors(Stream& stream, const char* name, const Rule& rule, const Args& args) {
  CHECK(args.step >= 1);
  UpdateBatch<Rule> batch = {.rule = rule,
                             .settings = {.gradient_scale = args.gradient_scale,
                                          .device_scale = args.device_scale,
                                          .average_rate = args.average_rate,
                                          .key = rounding_key(args.rounding_seed, args.step),
                                          .rounds_stochastically = args.rounding_seed != 0},
                             .tensors = {}};
  const auto start = [&] {
    launch(stream, batch_shape(name, batch.tensors), update_step<Rule>, batch);
    batch.tensors = {};
  };
  for (const UpdatedTensor& tensor : args.tensors) {
    if (is_full(batch.tensors)) start();
    append(batch.tensors, update_tensor(tensor, args.average_state),
           ceil_divided(tensor.count, kUpdateBlockElements));
  }
  start();
}

}  // namespace lockstep::kernels::cuda
