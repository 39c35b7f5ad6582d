#include "kernels/ops/own_gemm.h"

#include "kernels/device/parallel.h"
#include "kernels/ops/product_scratch.h"
#include LOCKSTEP_ISA_HEADER
#include "kernels/ops/cpu_ops.h"
#include "kernels/ops/packed_product.h"
#include "kernels/ops/simd.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

constexpr int64_t kRowBlock = 64;  // number of rows that a packed panel of b should serve

// Sets c to the bias, or to zero: a product with k = 0.
void start_rows(const Gemm& args) {
  for (int64_t i = 0; i < args.m; ++i) {
    for_vectors(args.n, [&](int64_t j, int64_t n) {
      store_n(args.c + i * args.n + j, args.bias ? load_n(args.bias + j, n) : Vec{}, n);
    });
  }
}

PackedProduct whole_product(const Gemm& args) {
  return {.a = {args.a.f32(), args.transpose_a ? 1 : args.k, args.transpose_a ? args.m : 1},
          .b = {args.b.f32(), args.transpose_b ? args.k : 1, args.transpose_b ? 1 : args.n},
          .bias = args.bias,
          .c = args.c,
          .c_row = args.n,
          .m = args.m,
          .n = args.n,
          .k = args.k,
          .accumulate = args.accumulate};
}

void multiply(const PackedProduct& product) {
  packed_product(product, product_scratch(kPackedBlockFloats + kPackedPanelFloats));
}

}  // namespace

void own_gemm(const Gemm& args) {
  CHECK(!(args.bias && args.accumulate));
  if (args.k == 0) {
    if (!args.accumulate) start_rows(args);
    return;
  }
  const PackedProduct whole = whole_product(args);
  if (args.m >= args.n) {
    parallel_for(args.m, kRowBlock, [&](Range range) {
      PackedProduct part = whole;
      part.a = whole.a.from(range.begin, 0);
      part.c += range.begin * part.c_row;
      part.m = range.end - range.begin;
      multiply(part);
    });
    return;
  }
  parallel_for(args.n, kRowBlock, [&](Range range) {
    PackedProduct part = whole;
    part.b = whole.b.from(range.begin, 0);
    if (part.bias) part.bias += range.begin;
    part.c += range.begin;
    part.n = range.end - range.begin;
    multiply(part);
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
