#include "bench/kernels/work.h"

#include <algorithm>
#include <span>

namespace lockstep::bench {

namespace {

// Operations per element, counted from the formulas in the headers.
constexpr double kGeluFlops = 9;           // x^3 and its factor, +, factor, tanh, 1 +, two factors
constexpr double kGeluBackwardFlops = 17;  // tanh again, 1 - t^2, the cubic's slope, times dy
constexpr double kLayerNormFlops = 8;      // mean 1, variance 3, normalize 2, weight, bias
constexpr double kLayerNormBackwardFlops = 13;
constexpr double kRmsNormFlops = 4;
constexpr double kRmsNormBackwardFlops = 9;
constexpr double kTanhFlops = 5;  // an exponential counts as one
constexpr double kTanhBackwardFlops = 3;
constexpr double kSwigluFlops = 5;
constexpr double kSwigluBackwardFlops = 11;
constexpr double kRotaryFlops = 3;   // 6 per pair
constexpr double kSoftmaxFlops = 5;  // per pair: scale, maximum, -, exp, sum
constexpr double kSoftmaxBackwardFlops = 6;
constexpr double kAdamWFlops = 17;
constexpr double kSgdFlops = 5;       // without momentum: scale, decay 2, step 2
constexpr double kSquareFlops = 7;    // square, first digit 2, rest, second digit, two sums
constexpr double kAdagradFlops = 10;  // scale, decay 2, square 2, root, epsilon, step 3
constexpr double kFtrlFlops = 17;     // scale, square 2, roots 2, z 5, size, beta 2, l2, step 3

double of(int64_t count) {
  return static_cast<double>(count);
}

double bytes(kernels::ConstView tensor, int64_t count) {
  return tensor ? of(count) * static_cast<double>(kernels::dtype_bytes(tensor.dtype)) : 0.0;
}

template <class T>
double bytes(const T* tensor, int64_t count) {
  return tensor == nullptr ? 0.0 : of(count) * static_cast<double>(sizeof(T));
}

kernels::DType factors_of(kernels::ConstView tensor, kernels::Precision precision) {
  return precision == kernels::Precision::kBf16 ? kernels::DType::kBf16 : tensor.dtype;
}

double pairs_of(const kernels::AttentionShape& s) {
  return of(s.batch * s.heads) * of(s.sequence) * of(s.sequence + 1) / 2.0;
}

// For logits [rows, columns].
double elements(const kernels::ClassifierShape& shape) {
  return of(shape.rows) * of(shape.columns);
}
double bytes(kernels::ConstView logits, const kernels::ClassifierShape& shape) {
  return bytes(logits, shape.rows * shape.columns);
}

Work update_work(std::span<const kernels::UpdatedTensor> tensors, double flops) {
  Work work;
  for (const kernels::UpdatedTensor& t : tensors) {
    work.bytes +=
        2.0 * bytes(t.parameter, t.count) + bytes(t.gradient, t.count) + bytes(t.copy, t.count);
    for (const float* state : t.states) work.bytes += 2.0 * bytes(state, t.count);
    work.other_flops += flops * of(t.count);
  }
  return work;
}

}  // namespace

Work work_of(const kernels::EmbeddingForward& a) {
  const int64_t rows = a.batch * a.sequence;
  return {.bytes = bytes(a.tokens, rows) +
                   bytes(a.token_table, std::min(rows, a.vocabulary) * a.width) +
                   bytes(a.position_table, a.sequence * a.width) + bytes(a.out, rows * a.width),
          .other_flops = a.position_table ? of(rows * a.width) : 0.0};
}

Work work_of(const kernels::EmbeddingBackward& a) {
  const int64_t rows = a.batch * a.sequence;
  return {.bytes = bytes(a.tokens, rows) + bytes(a.dout, rows * a.width) +
                   2.0 * bytes(a.dtoken_table, std::min(rows, a.vocabulary) * a.width) +
                   2.0 * bytes(a.dposition_table, a.sequence * a.width),
          .other_flops = ((a.dtoken_table ? 1.0 : 0.0) + (a.dposition_table ? 1.0 : 0.0)) *
                         of(rows * a.width)};
}

Work work_of(const kernels::LayerNormForward& a) {
  const int64_t count = a.rows * a.width;
  return {.bytes = bytes(a.x, count) + bytes(a.residual, count) + bytes(a.residual_out, count) +
                   bytes(a.weight, a.width) + bytes(a.bias, a.width) + bytes(a.y, count) +
                   bytes(a.mean, a.rows) + bytes(a.rstd, a.rows),
          .other_flops = (kLayerNormFlops + (a.residual ? 1.0 : 0.0)) * of(count)};
}

Work work_of(const kernels::LayerNormBackward& a) {
  const int64_t count = a.rows * a.width;
  return {.bytes = bytes(a.dy, count) + bytes(a.h, count) + bytes(a.weight, a.width) +
                   bytes(a.mean, a.rows) + bytes(a.rstd, a.rows) + bytes(a.dresidual, count) +
                   bytes(a.dx, count) + 2.0 * bytes(a.dweight, a.width) +
                   2.0 * bytes(a.dbias, a.width),
          .other_flops = (kLayerNormBackwardFlops + (a.dresidual ? 1.0 : 0.0)) * of(count)};
}

Work work_of(const kernels::RmsNormForward& a) {
  const int64_t count = a.rows * a.width;
  return {.bytes = bytes(a.x, count) + bytes(a.residual, count) + bytes(a.residual_out, count) +
                   bytes(a.weight, a.width) + bytes(a.y, count) + bytes(a.rrms, a.rows),
          .other_flops = (kRmsNormFlops + (a.residual ? 1.0 : 0.0)) * of(count)};
}

Work work_of(const kernels::RmsNormBackward& a) {
  const int64_t count = a.rows * a.width;
  return {.bytes = bytes(a.dy, count) + bytes(a.h, count) + bytes(a.weight, a.width) +
                   bytes(a.rrms, a.rows) + bytes(a.dresidual, count) + bytes(a.dx, count) +
                   2.0 * bytes(a.dweight, a.width),
          .other_flops = (kRmsNormBackwardFlops + (a.dresidual ? 1.0 : 0.0)) * of(count)};
}

Work work_of(const kernels::MatmulForward& a) {
  const double outputs = of(a.m) * of(a.n);
  return {.bytes = bytes(a.x, a.m * a.k) + bytes(a.weight, a.n * a.k) + bytes(a.bias, a.n) +
                   bytes(a.y, a.m * a.n) + bytes(a.pre_activation, a.m * a.n),
          .product_flops = 2.0 * outputs * of(a.k),
          .factors = factors_of(a.x, a.precision),
          .other_flops = (a.bias ? outputs : 0.0) +
                         (a.activation == kernels::Activation::kGelu ? kGeluFlops * outputs : 0.0)};
}

Work work_of(const kernels::MatmulBackward& a) {
  const double product = 2.0 * of(a.m) * of(a.n) * of(a.k);
  return {.bytes = bytes(a.dy, a.m * a.n) + (a.dweight ? bytes(a.x, a.m * a.k) : 0.0) +
                   (a.dx ? bytes(a.weight, a.n * a.k) : 0.0) +
                   bytes(a.x_pre_activation, a.m * a.k) + bytes(a.dx, a.m * a.k) +
                   2.0 * bytes(a.dweight, a.n * a.k) + 2.0 * bytes(a.dbias, a.n),
          .product_flops = (a.dx ? product : 0.0) + (a.dweight ? product : 0.0),
          .factors = factors_of(a.dy, a.precision),
          .other_flops = (a.x_pre_activation ? kGeluBackwardFlops * of(a.m * a.k) : 0.0) +
                         (a.dweight ? of(a.n * a.k) : 0.0) + (a.dbias ? of(a.m * a.n) : 0.0)};
}

Work work_of(const kernels::GeluForward& a) {
  return {.bytes = bytes(a.x, a.count) + bytes(a.y, a.count),
          .other_flops = kGeluFlops * of(a.count)};
}

Work work_of(const kernels::GeluBackward& a) {
  return {.bytes = bytes(a.x, a.count) + bytes(a.dy, a.count) + bytes(a.dx, a.count),
          .other_flops = kGeluBackwardFlops * of(a.count)};
}

Work work_of(const kernels::PointwiseForward& a) {
  const bool is_tanh = a.function == kernels::Pointwise::kTanh;
  return {.bytes = bytes(a.x, a.count) + bytes(a.y, a.count),
          .other_flops = (is_tanh ? kTanhFlops : 1) * of(a.count)};
}

Work work_of(const kernels::PointwiseBackward& a) {
  const bool is_tanh = a.function == kernels::Pointwise::kTanh;
  return {.bytes = bytes(a.y, a.count) + bytes(a.dy, a.count) + bytes(a.dx, a.count),
          .other_flops = (is_tanh ? kTanhBackwardFlops : 1) * of(a.count)};
}

Work work_of(const kernels::SwigluForward& a) {
  const int64_t count = a.rows * a.width;
  return {.bytes = bytes(a.gate_up, 2 * count) + bytes(a.y, count),
          .other_flops = kSwigluFlops * of(count)};
}

Work work_of(const kernels::SwigluBackward& a) {
  const int64_t count = a.rows * a.width;
  return {.bytes = bytes(a.gate_up, 2 * count) + bytes(a.dy, count) + bytes(a.dgate_up, 2 * count),
          .other_flops = kSwigluBackwardFlops * of(count)};
}

Work work_of(const kernels::Rotary& a) {
  const kernels::AttentionShape& s = a.shape;
  const int64_t rotated = s.batch * s.sequence * (s.width() + s.kv_width());
  return {.bytes = 2.0 * bytes(a.qkv, rotated) + bytes(a.table, s.sequence * s.head_dim),
          .other_flops = kRotaryFlops * of(rotated)};
}

Work work_of(const kernels::AttentionForward& a) {
  const kernels::AttentionShape& s = a.shape;
  const int64_t rows = s.batch * s.sequence;
  return {.bytes = bytes(a.qkv, rows * s.qkv_width()) + bytes(a.out, rows * s.width()) +
                   bytes(a.lse, rows * s.heads),
          .product_flops = 4.0 * of(s.head_dim) * pairs_of(s),
          .factors = a.qkv.dtype,
          .other_flops = kSoftmaxFlops * pairs_of(s)};
}

Work work_of(const kernels::AttentionBackward& a) {
  const kernels::AttentionShape& s = a.shape;
  const int64_t rows = s.batch * s.sequence;
  return {.bytes = bytes(a.dout, rows * s.width()) + bytes(a.qkv, rows * s.qkv_width()) +
                   bytes(a.out, rows * s.width()) + bytes(a.lse, rows * s.heads) +
                   bytes(a.dqkv, rows * s.qkv_width()),
          .product_flops = 10.0 * of(s.head_dim) * pairs_of(s),
          .factors = a.qkv.dtype,
          .other_flops = kSoftmaxBackwardFlops * pairs_of(s) + 2.0 * of(rows * s.width())};
}

Work work_of(const kernels::Classifier& a) {
  return {.bytes = (a.gradient ? 2.0 : 1.0) * bytes(a.logits, a.shape) +
                   bytes(a.targets, a.shape.rows) + bytes(a.losses, a.shape.rows),
          .other_flops = (a.gradient ? 6.0 : 4.0) * elements(a.shape)};
}

Work work_of(const kernels::ClassifierHits& a) {
  const kernels::ClassifierShape& s = a.shape;
  return {.bytes = bytes(a.logits, s.rows * s.columns) + bytes(a.targets, s.rows) +
                   bytes(a.hits, s.rows),
          .other_flops = of(s.rows * s.columns)};
}

Work work_of(const kernels::Conv2dForward& a) {
  const kernels::Conv2dShape& s = a.shape;
  return {.bytes = bytes(a.x, s.in_count()) + bytes(a.weight, s.weight_count()) +
                   bytes(a.bias, s.filters) + bytes(a.y, s.out_count()),
          .product_flops = 2.0 * of(s.out_count()) * of(s.filter_count()),
          .factors = a.x.dtype};
}

Work work_of(const kernels::Conv2dBackward& a) {
  const kernels::Conv2dShape& s = a.shape;
  return {.bytes = bytes(a.dy, s.out_count()) + bytes(a.x, s.in_count()) +
                   bytes(a.weight, a.dx ? s.weight_count() : 0) +
                   (a.adds_dx ? 2.0 : 1.0) * bytes(a.dx, s.in_count()) +
                   2.0 * bytes(a.dweight, s.weight_count()) + 2.0 * bytes(a.dbias, s.filters),
          .product_flops = (a.dx ? 4.0 : 2.0) * of(s.out_count()) * of(s.filter_count()),
          .factors = a.x.dtype};
}

Work work_of(const kernels::BatchNormSums& a) {
  const int64_t count = a.rows * a.channels;
  return {.bytes = bytes(a.x, count) + bytes(a.shift, a.channels) +
                   bytes(a.sums, kernels::batchnorm_sums_count(a.channels)),
          .other_flops = 4.0 * of(count)};
}

Work work_of(const kernels::BatchNormMoments& a) {
  return {.bytes = bytes(a.sums, kernels::batchnorm_sums_count(a.channels)) +
                   bytes(a.shift, a.channels) + bytes(a.mean, a.channels) +
                   bytes(a.variance, a.channels),
          .other_flops = 5.0 * of(a.channels)};
}

Work work_of(const kernels::BatchNormForward& a) {
  const int64_t count = a.rows * a.channels;
  return {.bytes = bytes(a.x, count) + bytes(a.residual, count) + bytes(a.y, count) +
                   4.0 * bytes(a.mean, a.channels),
          .other_flops = (2.0 + (a.residual ? 1.0 : 0.0) + (a.relu ? 1.0 : 0.0)) * of(count)};
}

Work work_of(const kernels::BatchNormBackwardSums& a) {
  const int64_t count = a.rows * a.channels;
  return {.bytes = (a.y ? 2.0 : 1.0) * bytes(a.dy, count) + bytes(a.y, count) + bytes(a.x, count) +
                   (a.adds_dresidual ? 2.0 : 1.0) * bytes(a.dresidual, count) +
                   bytes(a.sums, kernels::batchnorm_sums_count(a.channels)) +
                   6.0 * bytes(a.mean, a.channels),
          .other_flops = (5.0 + (a.y ? 1.0 : 0.0)) * of(count)};
}

Work work_of(const kernels::BatchNormBackward& a) {
  const int64_t count = a.rows * a.channels;
  return {.bytes = bytes(a.dy, count) + bytes(a.x, count) + bytes(a.dx, count) +
                   bytes(a.sums, kernels::batchnorm_sums_count(a.channels)) +
                   3.0 * bytes(a.mean, a.channels),
          .other_flops = 5.0 * of(count)};
}

Work work_of(const kernels::BatchNormRunning& a) {
  return {.bytes = 8.0 * bytes(a.mean, a.channels), .other_flops = 7.0 * of(a.channels)};
}

Work work_of(const kernels::PoolForward& a) {
  const kernels::PoolShape& s = a.shape;
  return {.bytes =
              bytes(a.x, s.in_count()) + bytes(a.y, s.out_count()) + bytes(a.places, s.out_count()),
          .other_flops = of(s.out_count()) * of(s.window_height * s.window_width)};
}

Work work_of(const kernels::PoolBackward& a) {
  const kernels::PoolShape& s = a.shape;
  return {.bytes = bytes(a.dy, s.out_count()) + bytes(a.places, s.out_count()) +
                   bytes(a.dx, s.in_count()),
          .other_flops = of(s.out_count())};
}

Work work_of(const kernels::SquaredError& a) {
  const int64_t count = a.rows * a.columns;
  return {.bytes = (a.gradient ? 2.0 : 1.0) * bytes(a.outputs, count) + bytes(a.values, count) +
                   bytes(a.losses, a.rows),
          .other_flops = (a.gradient ? 4.0 : 3.0) * of(count)};
}

Work work_of(const kernels::ClassifierMax& a) {
  return {.bytes = bytes(a.logits, a.shape) + bytes(a.maxima, a.shape.rows),
          .other_flops = elements(a.shape)};
}

Work work_of(const kernels::ClassifierSum& a) {
  const int64_t rows = a.shape.rows;
  return {.bytes = 2.0 * bytes(a.logits, a.shape) + bytes(a.targets, rows) + bytes(a.maxima, rows) +
                   bytes(a.sums, rows) + bytes(a.target_logits, rows),
          .other_flops = 3.0 * elements(a.shape)};
}

Work work_of(const kernels::ClassifierFinish& a) {
  const int64_t rows = a.shape.rows;
  return {.bytes = (a.gradient ? 2.0 * bytes(a.logits, a.shape) : 0.0) + bytes(a.targets, rows) +
                   bytes(a.sums, rows) + bytes(a.target_logits, rows) + bytes(a.losses, rows),
          .other_flops = a.gradient ? 2.0 * elements(a.shape) : 0.0};
}

Work work_of(const kernels::AdamW& a) {
  return update_work(a.tensors, kAdamWFlops);
}

Work work_of(const kernels::Sgd& a) {
  const double momentum = a.momentum > 0 ? 2.0 : 0.0;
  return update_work(a.tensors, kSgdFlops + momentum + (a.nesterov ? 2.0 : 0.0));
}

Work work_of(const kernels::Adagrad& a) {
  return update_work(a.tensors, kAdagradFlops);
}

Work work_of(const kernels::Ftrl& a) {
  return update_work(a.tensors, kFtrlFlops);
}

Work work_of(const kernels::SquaredNorm& a) {
  Work work{.bytes = 2.0 * bytes(a.sum, 1)};
  for (const kernels::FlatTensor& t : a.tensors) {
    work.bytes += bytes(t.data, t.count);
    work.other_flops += kSquareFlops * of(t.count);
  }
  return work;
}

Work work_of(const kernels::ClipScale& a) {
  return {.bytes = bytes(a.squares, 1) + bytes(a.scale, 1) + bytes(a.norm, 1), .other_flops = 1};
}

Work work_of(const kernels::InverseNorm& a) {
  return {.bytes = bytes(a.squares, 1) + bytes(a.factor, 1), .other_flops = 3};
}

Work work_of(const kernels::LossSum& a) {
  return {.bytes = bytes(a.losses, a.count) + 2.0 * bytes(a.sum, 1), .other_flops = of(a.count)};
}

Work work_of(const kernels::Fill& a) {
  return {.bytes = bytes(a.out, a.count)};
}

Work work_of(const kernels::Cast& a) {
  return {.bytes = bytes(a.x, a.count) + bytes(a.out, a.count)};
}

Work work_of(const kernels::Scale& a) {
  return {.bytes = bytes(a.x, a.count) + bytes(a.out, a.count), .other_flops = of(a.count)};
}

Work work_of(const kernels::Dropout& a) {
  return {.bytes = bytes(a.x, a.count) + bytes(a.out, a.count), .other_flops = of(a.count)};
}

Work work_of(const kernels::Add& a) {
  return {.bytes = bytes(a.a, a.count) + bytes(a.b, a.count) + bytes(a.out, a.count),
          .other_flops = of(a.count)};
}

Work work_of(const kernels::CopyRows& a) {
  return {.bytes = bytes(a.from, a.rows * a.width) + bytes(a.to, a.rows * a.width)};
}

Work work_of(const kernels::Sample& a) {
  return {.bytes = bytes(a.logits, a.rows * a.vocabulary) + bytes(a.uniforms, a.rows) +
                   bytes(a.tokens, a.rows),
          .other_flops = kSoftmaxFlops * of(a.rows) * of(a.vocabulary)};
}

}  // namespace lockstep::bench
