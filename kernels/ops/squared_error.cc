#include "kernels/ops/squared_error.h"

#include "kernels/device/parallel.h"
#include LOCKSTEP_ISA_HEADER
#include "kernels/ops/cpu_ops.h"
#include "kernels/ops/simd.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

void squared_error(Stream&, const SquaredError& args) {
  float* outputs = args.outputs.f32();
  const float factor = 2.0f * args.gradient_scale;
  const int64_t grain = max_of(1, 16384 / max_of(1, args.columns));
  parallel_for(args.rows, grain, [&](Range range) {
    for (int64_t r = range.begin; r < range.end; ++r) {
      float* row = outputs + r * args.columns;
      const float* values = args.values + r * args.columns;
      Vec sum = {};
      for_vectors(args.columns, [&](int64_t i, int64_t n) {
        const Vec difference = load_n(row + i, n) - load_n(values + i, n);
        sum += difference * difference;
        if (args.gradient) store_n(row + i, difference * factor, n);
      });
      args.losses[r] = sum_of(sum);
    }
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
