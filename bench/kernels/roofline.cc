#include "bench/kernels/roofline.h"

namespace lockstep::bench {

Bound bound_of(const Work& work, const Peaks& peaks) {
  const auto seconds = [](double amount, double rate) { return rate > 0.0 ? amount / rate : 0.0; };
  const double products =
      work.factors == kernels::DType::kBf16 ? peaks.bf16_flops : peaks.f32_flops;
  Bound bound{seconds(work.bytes, peaks.bytes), "memory"};
  for (const Bound& other : {Bound{seconds(work.product_flops, products), "products"},
                             Bound{seconds(work.other_flops, peaks.f32_flops), "arithmetic"}}) {
    if (other.seconds > bound.seconds) bound = other;
  }
  return bound;
}

}  // namespace lockstep::bench
