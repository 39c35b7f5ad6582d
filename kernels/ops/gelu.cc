#include "kernels/ops/gelu.h"

#include "kernels/device/parallel.h"
#include LOCKSTEP_ISA_HEADER
#include "kernels/ops/cpu_ops.h"
#include "kernels/ops/simd.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

constexpr int64_t kGrain = 16384;

template <GeluForm kForm>
inline Vec value_of(Vec x) {
  return kForm == GeluForm::kErf ? erf_gelu(x) : gelu(x);
}
template <GeluForm kForm>
inline Vec derivative_of(Vec x) {
  return kForm == GeluForm::kErf ? erf_gelu_derivative(x) : gelu_derivative(x);
}

template <GeluForm kForm>
void forward(const GeluForward& args) {
  const float* x = args.x.f32();
  float* y = args.y.f32();
  parallel_for(args.count, kGrain, [&](Range range) {
    for_vectors(range.end - range.begin, [&](int64_t i, int64_t n) {
      store_n(y + range.begin + i, value_of<kForm>(load_n(x + range.begin + i, n)), n);
    });
  });
}

template <GeluForm kForm>
void backward(const GeluBackward& args) {
  const float* x = args.x.f32();
  const float* dy = args.dy.f32();
  float* dx = args.dx.f32();
  parallel_for(args.count, kGrain, [&](Range range) {
    for_vectors(range.end - range.begin, [&](int64_t i, int64_t n) {
      const int64_t at = range.begin + i;
      store_n(dx + at, load_n(dy + at, n) * derivative_of<kForm>(load_n(x + at, n)), n);
    });
  });
}

}  // namespace

void gelu_forward(Stream&, const GeluForward& args) {
  args.form == GeluForm::kErf ? forward<GeluForm::kErf>(args) : forward<GeluForm::kTanh>(args);
}

void gelu_backward(Stream&, const GeluBackward& args) {
  args.form == GeluForm::kErf ? backward<GeluForm::kErf>(args) : backward<GeluForm::kTanh>(args);
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
