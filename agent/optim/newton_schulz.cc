#include "agent/optim/newton_schulz.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/check.h"

namespace lockstep::optim {
namespace {

constexpr int kIterations = 5;
static_assert(kIterations % 2 == 1);  // the result is in `out`, not in `x`
constexpr float kA = 3.4445f, kB = -4.775f, kC = 2.0315f;
constexpr double kNormEpsilon = 1e-7;

bool is_tall(const MatrixShape& shape) {
  return shape.rows > shape.columns;
}

// The iteration on one matrix. Its matrices are dense, so products read one that is symmetric
// either way.
class Iteration {
 public:
  Iteration(const kernels::OpTable& ops, kernels::Stream& stream, const NewtonSchulz& args)
      : ops_(ops), stream_(stream), args_(args), side_(args.shape.shorter()) {}

  void normalise() {
    kernels::SquareSum squares;
    const kernels::FlatTensor tensor{args_.x, args_.shape.count()};
    ops_.squared_norm(stream_, {.tensors = {&tensor, 1}, .sum = &squares});
    const double norm = std::sqrt(kernels::value_of(squares));
    scale(args_.x, args_.shape.count(), static_cast<float>(1 / (norm + kNormEpsilon)));
  }

  // Makes the next X from this one, which it overwrites.
  void advance(float* from, float* to) {
    make_gram(from);
    forward({side_, side_, side_}, args_.gram, args_.gram, args_.polynomial);
    scale(args_.polynomial, side_ * side_, kC);
    scale(args_.gram, side_ * side_, kB);
    add(args_.gram, args_.polynomial, side_ * side_);
    multiply_by_polynomial(from, to);
    scale(from, args_.shape.count(), kA);
    add(from, to, args_.shape.count());
  }

 private:
  void make_gram(const float* x) {
    const auto [rows, columns] = args_.shape;
    if (!is_tall(args_.shape)) return forward({rows, rows, columns}, x, x, args_.gram);
    ops_.fill(stream_, {.out = args_.gram, .count = side_ * side_, .value = 0});
    ops_.matmul_backward(stream_, {.dy = x,
                                   .x = x,
                                   .dweight = args_.gram,
                                   .m = rows,
                                   .n = columns,
                                   .k = columns,
                                   .precision = args_.precision,
                                   .workspace = args_.workspace});
  }
  void multiply_by_polynomial(const float* x, float* product) {
    const auto [rows, columns] = args_.shape;
    if (is_tall(args_.shape)) {
      return forward({rows, columns, columns}, x, args_.polynomial, product);
    }
    ops_.matmul_backward(stream_, {.dy = args_.polynomial,
                                   .weight = x,
                                   .dx = product,
                                   .m = rows,
                                   .n = rows,
                                   .k = columns,
                                   .precision = args_.precision,
                                   .workspace = args_.workspace});
  }
  // y = x weight^T.
  void forward(const kernels::MatmulShape& shape, const float* x, const float* weight, float* y) {
    ops_.matmul_forward(stream_, {.x = x,
                                  .weight = weight,
                                  .y = y,
                                  .m = shape.m,
                                  .n = shape.n,
                                  .k = shape.k,
                                  .precision = args_.precision,
                                  .workspace = args_.workspace});
  }
  void scale(float* values, int64_t count, float factor) {
    ops_.scale(stream_, {.x = values, .out = values, .count = count, .factor = factor});
  }
  void add(const float* values, float* to, int64_t count) {
    ops_.add(stream_, {.a = values, .b = to, .out = to, .count = count});
  }

  const kernels::OpTable& ops_;
  kernels::Stream& stream_;
  const NewtonSchulz& args_;
  int64_t side_;
};

}  // namespace

void newton_schulz(const kernels::OpTable& ops, kernels::Stream& stream, const NewtonSchulz& args) {
  CHECK(stream.device().type == kernels::DeviceType::kCpu);  // the host reads the norm
  Iteration iteration(ops, stream, args);
  iteration.normalise();
  float* from = args.x;
  float* to = args.out;
  for (int i = 0; i < kIterations; ++i) {
    iteration.advance(from, to);
    std::swap(from, to);
  }
}

size_t newton_schulz_workspace(const MatrixShape& shape, kernels::Precision precision) {
  constexpr auto kCpu = kernels::DeviceType::kCpu;
  const auto [rows, columns] = shape;
  const int64_t side = shape.shorter();
  // Those of the gram matrix and of the last product, for either shape.
  const kernels::MatmulShape longer{rows, is_tall(shape) ? columns : rows, columns};
  return std::max({kernels::matmul_forward_workspace(longer, precision, kCpu),
                   kernels::matmul_forward_workspace({side, side, side}, precision, kCpu),
                   kernels::matmul_backward_workspace(longer, precision, kCpu)});
}

double newton_schulz_flops(const MatrixShape& shape) {
  const auto side = static_cast<double>(shape.shorter());
  const double longer = static_cast<double>(shape.count()) / side;
  return kIterations * (4 * side * side * longer + 2 * side * side * side);
}

}  // namespace lockstep::optim
