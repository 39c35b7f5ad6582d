#include "kernels/ops/pointwise.h"

#include "kernels/device/parallel.h"
#include LOCKSTEP_ISA_HEADER
#include "kernels/ops/cpu_ops.h"
#include "kernels/ops/simd.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

constexpr int64_t kGrain = 16384;

// tanh(x) = x + x^3 p(x^2) near 0, by the polynomial of Cephes' tanhf; 1 - 2 / (e^(2|x|) + 1) with
// the sign of x elsewhere. Beyond |x| = 10 it is 1 in fp32, so |x| is clamped there. NaN stays NaN.
inline Vec tanh_of(Vec x) {
  const Vec limit = all(10.0f), near = all(0.625f), zero = {};
  const Vec magnitude = x < zero ? -x : x;
  const Vec clamped = magnitude > limit ? limit : magnitude;
  const Vec far = 1.0f - 2.0f / (exp_bounded(clamped + clamped) + 1.0f);
  const Vec z = clamped * clamped;
  Vec p = all(-5.70498872745e-3f);
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  return magnitude < near ? x + x * z * p : (x < zero ? -far : far);
}

template <class Function>
void for_elements(int64_t count, Function function) {
  parallel_for(count, kGrain, [&](Range range) {
    for_vectors(range.end - range.begin,
                [&](int64_t i, int64_t n) { function(range.begin + i, n); });
  });
}

}  // namespace

void pointwise_forward(Stream&, const PointwiseForward& args) {
  const float* x = args.x.f32();
  float* y = args.y.f32();
  if (args.function == Pointwise::kTanh) {
    for_elements(args.count,
                 [&](int64_t at, int64_t n) { store_n(y + at, tanh_of(load_n(x + at, n)), n); });
    return;
  }
  for_elements(args.count, [&](int64_t at, int64_t n) {
    const Vec v = load_n(x + at, n);
    store_n(y + at, v < Vec{} ? Vec{} : v, n);  // NaN stays NaN
  });
}

void pointwise_backward(Stream&, const PointwiseBackward& args) {
  const float* y = args.y.f32();
  const float* dy = args.dy.f32();
  float* dx = args.dx.f32();
  if (args.function == Pointwise::kTanh) {
    for_elements(args.count, [&](int64_t at, int64_t n) {
      const Vec v = load_n(y + at, n);
      store_n(dx + at, load_n(dy + at, n) * (1.0f - v * v), n);
    });
    return;
  }
  for_elements(args.count, [&](int64_t at, int64_t n) {
    store_n(dx + at, load_n(y + at, n) <= Vec{} ? Vec{} : load_n(dy + at, n), n);
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
