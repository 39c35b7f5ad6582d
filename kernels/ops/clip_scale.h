#pragma once

#include <cstdint>

#include "kernels/device/device.h"

namespace lockstep {

// With norm = sqrt(sum of squares[i]): *scale = 1, or clip_norm / (norm + 1e-6) where norm is
// above clip_norm, as PyTorch's clip_grad_norm_. clip_norm 0: always 1. Else a norm that is not
// finite gives NaN, with which AdamW writes nothing. All pointers are to the device's memory, so
// that a step needs no answer of the host's.
struct ClipScale {
  const double* squares =
      nullptr;  // [count]: what SquaredNorm gave, for each part of the gradients
  int64_t count = 0;
  float* scale = nullptr;
  float* norm = nullptr;  // or null
  double clip_norm = 0.0;
};

// The factor for one norm, on any device.
constexpr float clip_factor(double norm, double clip_norm) {
  if (clip_norm <= 0.0 || norm <= clip_norm) return 1.0f;
  const double factor = clip_norm / (norm + 1e-6);
  const bool is_finite = norm - norm == 0.0;
  return static_cast<float>(is_finite ? factor : norm - norm);
}

}  // namespace lockstep
