#include "kernels/ops/own_gemm.h"

#include "kernels/device/parallel.h"
#include LOCKSTEP_ISA_HEADER
#include "kernels/ops/cpu_ops.h"
#include "kernels/ops/product.h"
#include "kernels/ops/simd.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

constexpr int64_t kRowBlock = 64;  // number of rows that a packed panel of b should serve

// Sets rows to the bias, or to zero if there is nothing to add (k = 0).
void start_rows(const Gemm& args, float* c, int64_t rows) {
  for (int64_t i = 0; i < rows; ++i) {
    for_vectors(args.n, [&](int64_t j, int64_t n) {
      store_n(c + i * args.n + j, args.bias ? load_n(args.bias + j, n) : Vec{}, n);
    });
  }
}

}  // namespace

void own_gemm(const Gemm& args) {
  CHECK(!(args.bias && args.accumulate));
  const bool started = args.bias || args.k == 0;
  if (started && !args.accumulate) {
    parallel_for(args.m, kRowBlock, [&](Range range) {
      start_rows(args, args.c + range.begin * args.n, range.end - range.begin);
    });
  }
  const Product whole{.a = args.a.f32(),
                      .a_row = args.transpose_a ? 1 : args.k,
                      .a_col = args.transpose_a ? args.m : 1,
                      .b = args.b.f32(),
                      .b_row = args.transpose_b ? 1 : args.n,
                      .b_col = args.transpose_b ? args.k : 1,
                      .c = args.c,
                      .c_row = args.n,
                      .m = args.m,
                      .n = args.n,
                      .k = args.k,
                      .accumulate = args.accumulate || started};
  if (args.m >= args.n) {
    parallel_for(args.m, kRowBlock, [&](Range range) {
      Product part = whole;
      part.a += range.begin * part.a_row;
      part.c += range.begin * part.c_row;
      part.m = range.end - range.begin;
      product(part);
    });
  } else {
    parallel_for((args.n + kPanel - 1) / kPanel, 2, [&](Range range) {
      product_columns(whole, range.begin * kPanel, min_of(range.end * kPanel, args.n));
    });
  }
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
