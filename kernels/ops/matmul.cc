#include "kernels/ops/matmul.h"

#include "kernels/device/parallel.h"
#include "kernels/ops/gemm.h"
#include LOCKSTEP_ISA_HEADER
#include "kernels/ops/cpu_ops.h"
#include "kernels/ops/simd.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

constexpr int64_t kColumnBlock = 1024;
constexpr int64_t kColumnWork = 65536;  // number of additions that are worth a thread

// Converts factors to the dtype that the precision needs, in the workspace.
class Factors {
 public:
  Factors(Stream& stream, bool bf16, Workspace workspace)
      : stream_(stream), bf16_(bf16), left_(workspace) {}

  ConstView prepare(ConstView view, int64_t count) {
    const DType wanted = bf16_ ? DType::kBf16 : DType::kF32;
    if (view.dtype == wanted) return view;
    const size_t bytes = matmul_factor_bytes(count, wanted);
    CHECK(left_.bytes >= bytes);
    const View out(left_.data, wanted);
    left_ = {static_cast<char*>(left_.data) + bytes, left_.bytes - bytes};
    cast(stream_, {.x = view, .out = out, .count = count});
    return out;
  }

 private:
  Stream& stream_;
  bool bf16_;
  Workspace left_;
};

// sums[j] += x[0,j] + x[1,j] + ..., rows in ascending order; each thread has its own columns.
void add_column_sums(const float* x, int64_t rows, int64_t columns, float* sums) {
  const int64_t grain = max_of(kLanes, kColumnWork / max_of(1, rows));
  parallel_for(columns, grain, [&](Range range) {
    float part[kColumnBlock];
    for (int64_t begin = range.begin; begin < range.end; begin += kColumnBlock) {
      const int64_t count = min_of(kColumnBlock, range.end - begin);
      __builtin_memset(part, 0, sizeof part);
      for (int64_t row = 0; row < rows; ++row) {
        const float* from = x + row * columns + begin;
        for_vectors(count, [&](int64_t i, int64_t n) {
          store_n(part + i, load_n(part + i, n) + load_n(from + i, n), n);
        });
      }
      for (int64_t i = 0; i < count; ++i) sums[begin + i] += part[i];
    }
  });
}

// Returns how many rows to take through all passes of an op before the next rows, so that they stay
// in the cache between passes. Returns all rows if the weights are large, because each product
// reads them again, and with AVX2, where our own product packs them each time (gemm_dnnl.cc).
int64_t rows_at_once(const MatmulShape& shape) {
  if (LOCKSTEP_ISA_LEVEL == CpuLevel::kAvx2) return shape.m;
  constexpr int64_t kSmallWeight = 1 << 18;
  constexpr int64_t kRowsInCache = 1 << 17;  // floats of x and y, per thread
  if (shape.n * shape.k > kSmallWeight) return shape.m;
  const int64_t rows = kRowsInCache * threads() / (shape.n + shape.k) / 64 * 64;
  return max_of(128, min_of(rows, shape.m));
}

// Returns rows [begin, ...) of a [rows, columns] matrix; null stays null.
ConstView from_row(const ConstView& view, int64_t begin, int64_t columns) {
  if (!view) return view;
  const size_t offset = static_cast<size_t>(begin * columns) * dtype_bytes(view.dtype);
  return {static_cast<const char*>(view.data) + offset, view.dtype};
}
View from_row(const View& view, int64_t begin, int64_t columns) {
  const ConstView moved = from_row(ConstView(view), begin, columns);
  return {const_cast<void*>(moved.data), moved.dtype};
}

void forward_rows(Stream& stream, const MatmulForward& args, Factors factors) {
  const bool gelu = args.activation == Activation::kGelu;
  float* linear = gelu && args.pre_activation ? args.pre_activation.f32() : args.y.f32();
  gemm({.a = factors.prepare(args.x, args.m * args.k),
        .b = args.weight,
        .bias = args.bias.f32(),
        .c = linear,
        .m = args.m,
        .n = args.n,
        .k = args.k,
        .transpose_b = true});
  if (gelu) gelu_forward(stream, {.x = linear, .y = args.y, .count = args.m * args.n});
}

void backward_rows(Stream& stream, const MatmulBackward& args, Factors factors) {
  const ConstView dy = factors.prepare(args.dy, args.m * args.n);
  if (args.dbias) add_column_sums(args.dy.f32(), args.m, args.n, args.dbias.f32());
  if (args.dweight) {
    gemm({.a = dy,
          .b = factors.prepare(args.x, args.m * args.k),
          .c = args.dweight.f32(),
          .m = args.n,
          .n = args.k,
          .k = args.m,
          .transpose_a = true,
          .accumulate = true});
  }
  if (!args.dx) return;
  gemm({.a = dy, .b = args.weight, .c = args.dx.f32(), .m = args.m, .n = args.k, .k = args.n});
  if (args.x_pre_activation) {
    gelu_backward(
        stream,
        {.x = args.x_pre_activation, .dy = args.dx, .dx = args.dx, .count = args.m * args.k});
  }
}

}  // namespace

void matmul_forward(Stream& stream, const MatmulForward& args) {
  if (args.m == 0 || args.n == 0) return;
  CHECK(args.activation == Activation::kGelu || !args.pre_activation);
  Factors factors(stream, matmul_in_bf16(args.precision), args.workspace);
  MatmulForward part = args;
  part.weight = factors.prepare(args.weight, args.n * args.k);
  const int64_t at_once = rows_at_once({args.m, args.n, args.k});
  for (int64_t row = 0; row < args.m; row += at_once) {
    part.m = min_of(at_once, args.m - row);
    part.x = from_row(args.x, row, args.k);
    part.y = from_row(args.y, row, args.n);
    part.pre_activation = from_row(args.pre_activation, row, args.n);
    forward_rows(stream, part, factors);
  }
}

void matmul_backward(Stream& stream, const MatmulBackward& args) {
  if (args.m == 0 || args.n == 0) return;
  Factors factors(stream, matmul_in_bf16(args.precision), args.workspace);
  MatmulBackward part = args;
  if (args.dx) part.weight = factors.prepare(args.weight, args.n * args.k);
  const int64_t at_once = rows_at_once({args.m, args.n, args.k});
  for (int64_t row = 0; row < args.m; row += at_once) {
    part.m = min_of(at_once, args.m - row);
    part.dy = from_row(args.dy, row, args.n);
    part.x = from_row(args.x, row, args.k);
    part.x_pre_activation = from_row(args.x_pre_activation, row, args.k);
    part.dx = from_row(args.dx, row, args.k);
    backward_rows(stream, part, factors);
  }
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
