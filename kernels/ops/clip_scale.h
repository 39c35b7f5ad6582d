#pragma once

#include <cstdint>

#include "kernels/ops/squared_norm.h"

namespace lockstep::kernels {

// With norm = sqrt(*squares): *scale = 1, or clip_norm / (norm + 1e-6) if norm is above
// clip_norm, as PyTorch's clip_grad_norm_. clip_norm 0: always 1. Otherwise a norm that is not
// finite gives NaN, with which optimizers write nothing. All pointers are in device memory, so that
// a step does not wait for the host.
struct ClipScale {
  const SquareSum* squares = nullptr;  // of all gradients
  float* scale = nullptr;
  float* norm = nullptr;  // or null
  double clip_norm = 0.0;
};

// Returns the factor for one norm; usable on any device.
constexpr float clip_factor(double norm, double clip_norm) {
  if (clip_norm <= 0.0 || norm <= clip_norm) return 1.0f;
  const double factor = clip_norm / (norm + 1e-6);
  const bool is_finite = norm - norm == 0.0;
  return static_cast<float>(is_finite ? factor : norm - norm);
}

}  // namespace lockstep::kernels
