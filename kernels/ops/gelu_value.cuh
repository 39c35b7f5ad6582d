#pragma once

#include "kernels/device/cuda/values.cuh"

namespace lockstep::kernels::cuda {

// GELU(x) = x * s, s = sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3), as in kernels/ops/simd.h.
// Beyond |x| = 16, s is exactly 0 or 1 in fp32, so x is clamped there. T is the type results are
// stored as.
struct GeluTerms {
  float x;           // clamped
  float s;           // sigmoid(2u)
  float complement;  // 1 - s
};
inline constexpr float kGeluLimit = 16.0f;
inline constexpr float kGeluLinear = 1.5957691216057308f;   // 2 sqrt(2/pi)
inline constexpr float kGeluCubic = 0.071354816272600244f;  // 2 sqrt(2/pi) 0.044715

template <class T>
__device__ __forceinline__ GeluTerms gelu_terms(float x) {
  const float cut = fminf(fmaxf(x, -kGeluLimit), kGeluLimit);
  const float minus_two_u = -cut * (cut * cut * kGeluCubic + kGeluLinear);
  // Clamped so that e^(-2u) stays finite and e * s is not infinity times 0.
  const float e = exp_for<T>(fminf(minus_two_u, 87.0f));
  const float s = 1.0f / (1.0f + e);
  return {x != x ? x : cut, x < -kGeluLimit ? 0.0f : s, e * s};
}
template <class T>
__device__ __forceinline__ float gelu_value(float x) {
  return x * gelu_terms<T>(x).s;
}
template <class T>
__device__ __forceinline__ float gelu_derivative(float x) {
  const GeluTerms t = gelu_terms<T>(x);
  return t.s + t.x * t.s * t.complement * (t.x * t.x * (3.0f * kGeluCubic) + kGeluLinear);
}

// GELU(x) = x * P, P = (1 + erf(x / sqrt(2))) / 2, without cancellation for x below 0.
__device__ __forceinline__ float erf_gelu_probability(float x) {
  return 0.5f * erfcf(-x * 0.70710678118654752f);
}
__device__ __forceinline__ float erf_gelu_value(float x) {
  return x * erf_gelu_probability(x);
}
__device__ __forceinline__ float erf_gelu_derivative(float x) {
  const float cut = fminf(fmaxf(x, -kGeluLimit), kGeluLimit);
  const float density = 0.39894228040143268f * expf(-0.5f * cut * cut);
  return x != x ? x : erf_gelu_probability(cut) + cut * density;
}

}  // namespace lockstep::kernels::cuda
