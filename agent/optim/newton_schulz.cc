#include "agent/optim/newton_schulz.h"

#include <algorithm>
#include <utility>

namespace lockstep::optim {
namespace {

using kernels::ConstView;
using kernels::DType;
using kernels::View;

constexpr int kIterations = 5;
static_assert(kIterations % 2 == 1);  // the last X is where the first one was not
constexpr float kA = 3.4445f, kB = -4.775f, kC = 2.0315f;
constexpr double kNormEpsilon = 1e-7;

bool is_tall(const MatrixShape& shape) {
  return shape.rows > shape.columns;
}

// On a GPU the tensors' type decides how products are computed.
bool keeps_bf16(const kernels::Stream& stream, const NewtonSchulz& args) {
  return stream.device().type == kernels::DeviceType::kCuda &&
         args.precision == kernels::Precision::kBf16;
}

// The iteration on one matrix. Its matrices are dense, so products read one that is symmetric
// either way.
class Iteration {
 public:
  Iteration(const kernels::OpTable& ops, kernels::Stream& stream, const NewtonSchulz& args)
      : ops_(ops),
        stream_(stream),
        args_(args),
        side_(args.shape.shorter()),
        is_bf16_(keeps_bf16(stream, args)),
        // In bf16 the square that is named gram takes a sum in fp32 before the gram matrix.
        gram_(view_of(is_bf16_ ? args.polynomial : args.gram)),
        polynomial_(view_of(is_bf16_ ? args.gram : args.polynomial)) {}

  void run() {
    normalise();
    View from = view_of(args_.x), to = view_of(args_.out);
    if (is_bf16_) {
      ops_.cast(stream_, {.x = args_.x, .out = to, .count = args_.shape.count()});
      std::swap(from, to);
    }
    for (int i = 0; i < kIterations; ++i) {
      advance(from, to);
      std::swap(from, to);
    }
    if (is_bf16_) ops_.cast(stream_, {.x = from, .out = args_.out, .count = args_.shape.count()});
  }

 private:
  View view_of(float* memory) const { return View(memory, is_bf16_ ? DType::kBf16 : DType::kF32); }

  void normalise() {
    constexpr int64_t kFloats = sizeof(kernels::SquareSum) / sizeof(float);
    ops_.fill(stream_, {.out = View(args_.squares, DType::kF32), .count = kFloats, .value = 0});
    const kernels::FlatTensor tensor{args_.x, args_.shape.count()};
    ops_.squared_norm(stream_, {.tensors = {&tensor, 1}, .sum = args_.squares});
    ops_.inverse_norm(stream_,
                      {.squares = args_.squares, .factor = args_.factor, .epsilon = kNormEpsilon});
    ops_.scale(stream_, {.x = args_.x,
                         .out = args_.x,
                         .count = args_.shape.count(),
                         .device_factor = args_.factor});
  }

  // Makes the next X from this one, which it overwrites.
  void advance(View from, View to) {
    make_gram(from);
    forward({side_, side_, side_}, gram_, gram_, polynomial_);
    scale(polynomial_, side_ * side_, kC);
    scale(gram_, side_ * side_, kB);
    add(gram_, polynomial_, side_ * side_);
    multiply_by_polynomial(from, to);
    scale(from, args_.shape.count(), kA);
    add(from, to, args_.shape.count());
  }

  void make_gram(ConstView x) {
    const auto [rows, columns] = args_.shape;
    if (!is_tall(args_.shape)) return forward({rows, rows, columns}, x, x, gram_);
    ops_.fill(stream_, {.out = args_.gram, .count = side_ * side_, .value = 0});
    ops_.matmul_backward(stream_, {.dy = x,
                                   .x = x,
                                   .dweight = args_.gram,
                                   .m = rows,
                                   .n = columns,
                                   .k = columns,
                                   .precision = args_.precision,
                                   .workspace = args_.workspace});
    if (is_bf16_) ops_.cast(stream_, {.x = args_.gram, .out = gram_, .count = side_ * side_});
  }
  void multiply_by_polynomial(ConstView x, View product) {
    const auto [rows, columns] = args_.shape;
    if (is_tall(args_.shape)) {
      return forward({rows, columns, columns}, x, polynomial_, product);
    }
    ops_.matmul_backward(stream_, {.dy = polynomial_,
                                   .weight = x,
                                   .dx = product,
                                   .m = rows,
                                   .n = rows,
                                   .k = columns,
                                   .precision = args_.precision,
                                   .workspace = args_.workspace});
  }
  // y = x weight^T.
  void forward(const kernels::MatmulShape& shape, ConstView x, ConstView weight, View y) {
    ops_.matmul_forward(stream_, {.x = x,
                                  .weight = weight,
                                  .y = y,
                                  .m = shape.m,
                                  .n = shape.n,
                                  .k = shape.k,
                                  .precision = args_.precision,
                                  .workspace = args_.workspace});
  }
  void scale(View values, int64_t count, float factor) {
    ops_.scale(stream_, {.x = values, .out = values, .count = count, .factor = factor});
  }
  void add(ConstView values, View to, int64_t count) {
    ops_.add(stream_, {.a = values, .b = to, .out = to, .count = count});
  }

  const kernels::OpTable& ops_;
  kernels::Stream& stream_;
  const NewtonSchulz& args_;
  int64_t side_;
  bool is_bf16_;
  View gram_;
  View polynomial_;
};

}  // namespace

void newton_schulz(const kernels::OpTable& ops, kernels::Stream& stream, const NewtonSchulz& args) {
  Iteration(ops, stream, args).run();
}

size_t newton_schulz_workspace(const MatrixShape& shape, kernels::Precision precision,
                               kernels::DeviceType device) {
  const auto [rows, columns] = shape;
  const int64_t side = shape.shorter();
  // Those of the gram matrix and of the last product, for either shape.
  const kernels::MatmulShape longer{rows, is_tall(shape) ? columns : rows, columns};
  return std::max({kernels::matmul_forward_workspace(longer, precision, device),
                   kernels::matmul_forward_workspace({side, side, side}, precision, device),
                   kernels::matmul_backward_workspace(longer, precision, device)});
}

double newton_schulz_flops(const MatrixShape& shape) {
  const auto side = static_cast<double>(shape.shorter());
  const double longer = static_cast<double>(shape.count()) / side;
  return kIterations * (4 * side * side * longer + 2 * side * side * side);
}

}  // namespace lockstep::optim
