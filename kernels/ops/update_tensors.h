// The loop that the CPU's optimizer ops share; include after kernels/ops/simd.h.
#pragma once

#include <cstdint>

#include "kernels/device/parallel.h"
#include "kernels/ops/cpu_ops.h"
#include "kernels/ops/parameter_update.h"

namespace lockstep::kernels::LOCKSTEP_ISA {
namespace {

inline Vec sqrt_vec(Vec v) {
  for (int i = 0; i < kLanes; ++i) v[i] = __builtin_sqrtf(v[i]);
  return v;
}

inline void update_average(float* average, float rate, const float* parameter, Range range) {
  for_vectors(range.end - range.begin, [&](int64_t i, int64_t n) {
    const int64_t at = range.begin + i;
    const Vec old = load_n(average + at, n);
    store_n(average + at, old + (load_n(parameter + at, n) - old) * rate, n);
  });
}

inline void update_plainly(const UpdatedTensor& t, Range range) {
  for_vectors(range.end - range.begin, [&](int64_t i, int64_t n) {
    const int64_t at = range.begin + i;
    store_n(t.parameter + at,
            load_n(t.parameter + at, n) - load_n(t.gradient + at, n) * t.plain_rate, n);
  });
}

// Calls update(tensor, gradient scale, range) for ranges that cover each tensor, on all threads,
// then makes the copies. The averages follow while a range is still in the cache. `Args` is AdamW,
// Sgd, Adagrad or Ftrl.
template <class Args, class Update>
void update_tensors(Stream& stream, const Args& args, Update update) {
  constexpr int64_t kGrain = 16384;
  const float scale =
      args.device_scale ? args.gradient_scale * *args.device_scale : args.gradient_scale;
  if (args.device_scale && !__builtin_isfinite(scale)) return;
  for (size_t i = 0; i < args.tensors.size(); ++i) {
    const UpdatedTensor& tensor = args.tensors[i];
    parallel_for(tensor.count, kGrain, [&](Range range) {
      if (tensor.plain_rate > 0.0f) {
        update_plainly(tensor, range);
      } else {
        update(tensor, scale, range);
      }
      if (args.average_state < 0) return;
      update_average(tensor.states[args.average_state], args.average_rate, tensor.parameter, range);
    });
    if (!tensor.copy) continue;
    cast(stream, {.x = tensor.parameter,
                  .out = tensor.copy,
                  .count = tensor.count,
                  .rounding_seed = args.rounding_seed,
                  .step = args.step,
                  .index = tensor.index});
  }
}

}  // namespace
}  // namespace lockstep::kernels::LOCKSTEP_ISA
