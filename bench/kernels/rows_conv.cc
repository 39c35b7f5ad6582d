// Rows for the ops of convolutional networks. The model's rows are pixels, an eighth of its width
// the channels.
#include <algorithm>

#include "bench/kernels/rows_parts.h"
#include "kernels/ops/dnn/dnn.h"

namespace lockstep::bench {

namespace {

// An image is a column of pixels, as the model has tokens.
kernels::Conv2dShape conv_shape(const Model& m) {
  return {.batch = m.batch,
          .height = m.sequence,
          .width = 1,
          .channels = m.width,
          .filters = m.width,
          .filter_height = 3,
          .filter_width = 3,
          .padding = 1};
}

kernels::PoolShape pool_shape(const Model& m) {
  return {.batch = m.batch,
          .height = m.sequence,
          .width = 2,
          .channels = m.width,
          .window_height = 2,
          .window_width = 2,
          .stride = 2};
}

// A convolution, by our own kernels or by those that were prepared.
struct Convolution {
  kernels::Conv2dShape shape;
  kernels::DType dtype = kernels::DType::kF32;
  kernels::dnn::PreparedConv2d prepared = {};
};

kernels::Workspace conv_workspace(Memory& memory, const Convolution& c) {
  const size_t own = kernels::conv2d_workspace(c.shape, memory.bench_device().device().type);
  return memory.workspace(std::max(own, c.prepared.workspace_bytes()));
}

Call conv2d_forward(Memory& memory, const Convolution& c) {
  return memory.call(
      &kernels::OpTable::conv2d_forward,
      kernels::Conv2dForward{.x = memory.numbers(c.shape.in_count(), c.dtype),
                             .weight = memory.numbers(c.shape.weight_count(), c.dtype),
                             .y = memory.numbers(c.shape.out_count(), c.dtype),
                             .shape = c.shape,
                             .workspace = conv_workspace(memory, c),
                             .by = c.prepared.kernels()});
}

Call conv2d_backward(Memory& memory, const Convolution& c) {
  return memory.call(
      &kernels::OpTable::conv2d_backward,
      kernels::Conv2dBackward{.dy = memory.numbers(c.shape.out_count(), c.dtype),
                              .x = memory.numbers(c.shape.in_count(), c.dtype),
                              .weight = memory.numbers(c.shape.weight_count(), c.dtype),
                              .dx = memory.numbers(c.shape.in_count(), c.dtype),
                              .dweight = memory.floats(c.shape.weight_count()),
                              .shape = c.shape,
                              .workspace = conv_workspace(memory, c),
                              .by = c.prepared.kernels()});
}

// Arguments of batch normalisation.
struct Normed {
  int64_t rows = 0;
  int64_t channels = 0;
  kernels::View x;
  float* mean = nullptr;
  float* variance = nullptr;
  float* weight = nullptr;
  float* bias = nullptr;
  double* sums = nullptr;
  kernels::Workspace workspace;
};

Normed normed(Memory& memory, const Model& m) {
  constexpr Range kPositive{0.5f, 1.5f};
  const int64_t rows = m.batch * m.sequence;
  std::vector<double> sums(static_cast<size_t>(kernels::batchnorm_sums_count(m.width)), 1.0);
  sums.back() = static_cast<double>(rows);
  return {.rows = rows,
          .channels = m.width,
          .x = memory.numbers(rows * m.width, m.dtype),
          .mean = memory.floats(m.width),
          .variance = memory.floats(m.width, kPositive),
          .weight = memory.floats(m.width),
          .bias = memory.floats(m.width),
          .sums = memory.doubles(sums),
          .workspace = memory.workspace(
              kernels::batchnorm_workspace(m.width, memory.bench_device().device().type))};
}

Call batchnorm_sums(Memory& memory, const Model& m) {
  const Normed n = normed(memory, m);
  return memory.call(&kernels::OpTable::batchnorm_sums,
                     kernels::BatchNormSums{.x = n.x,
                                            .shift = n.mean,
                                            .sums = n.sums,
                                            .rows = n.rows,
                                            .channels = n.channels,
                                            .workspace = n.workspace});
}

Call batchnorm_moments(Memory& memory, const Model& m) {
  const Normed n = normed(memory, m);
  return memory.call(&kernels::OpTable::batchnorm_moments,
                     kernels::BatchNormMoments{.sums = n.sums,
                                               .shift = n.bias,
                                               .mean = n.mean,
                                               .variance = n.variance,
                                               .channels = n.channels});
}

Call batchnorm_forward(Memory& memory, const Model& m) {
  const Normed n = normed(memory, m);
  return memory.call(&kernels::OpTable::batchnorm_forward,
                     kernels::BatchNormForward{.x = n.x,
                                               .mean = n.mean,
                                               .variance = n.variance,
                                               .weight = n.weight,
                                               .bias = n.bias,
                                               .y = memory.numbers(n.rows * n.channels, m.dtype),
                                               .rows = n.rows,
                                               .channels = n.channels,
                                               .relu = true});
}

Call batchnorm_backward_sums(Memory& memory, const Model& m) {
  const Normed n = normed(memory, m);
  const int64_t count = n.rows * n.channels;
  return memory.call(&kernels::OpTable::batchnorm_backward_sums,
                     kernels::BatchNormBackwardSums{.dy = memory.numbers(count, m.dtype),
                                                    .y = memory.numbers(count, m.dtype),
                                                    .x = n.x,
                                                    .mean = n.mean,
                                                    .variance = n.variance,
                                                    .sums = n.sums,
                                                    .dweight = n.weight,
                                                    .dbias = n.bias,
                                                    .rows = n.rows,
                                                    .channels = n.channels,
                                                    .workspace = n.workspace});
}

Call batchnorm_backward(Memory& memory, const Model& m) {
  const Normed n = normed(memory, m);
  const int64_t count = n.rows * n.channels;
  return memory.call(&kernels::OpTable::batchnorm_backward,
                     kernels::BatchNormBackward{.dy = memory.numbers(count, m.dtype),
                                                .x = n.x,
                                                .mean = n.mean,
                                                .variance = n.variance,
                                                .weight = n.weight,
                                                .sums = n.sums,
                                                .dx = memory.numbers(count, m.dtype),
                                                .rows = n.rows,
                                                .channels = n.channels});
}

Call batchnorm_running(Memory& memory, const Model& m) {
  const Normed n = normed(memory, m);
  return memory.call(&kernels::OpTable::batchnorm_running,
                     kernels::BatchNormRunning{.mean = n.mean,
                                               .variance = n.variance,
                                               .running_mean = n.weight,
                                               .running_variance = n.bias,
                                               .rows = n.sums + 2 * n.channels,
                                               .dmean = memory.floats(n.channels),
                                               .dvariance = memory.floats(n.channels),
                                               .channels = n.channels});
}

int32_t* first_places(Memory& memory, const kernels::PoolShape& shape) {
  return memory.integers(std::vector<int32_t>(static_cast<size_t>(shape.out_count()), 0));
}

Call pool_forward(Memory& memory, const Model& m) {
  const kernels::PoolShape shape = pool_shape(m);
  return memory.call(&kernels::OpTable::pool_forward,
                     kernels::PoolForward{.x = memory.numbers(shape.in_count(), m.dtype),
                                          .y = memory.numbers(shape.out_count(), m.dtype),
                                          .places = first_places(memory, shape),
                                          .shape = shape});
}

Call pool_backward(Memory& memory, const Model& m) {
  const kernels::PoolShape shape = pool_shape(m);
  return memory.call(&kernels::OpTable::pool_backward,
                     kernels::PoolBackward{.dy = memory.numbers(shape.out_count(), m.dtype),
                                           .places = first_places(memory, shape),
                                           .dx = memory.numbers(shape.in_count(), m.dtype),
                                           .shape = shape});
}

// As many channels as early layers have.
Model narrow(Model model) {
  model.width /= 8;
  return model;
}

std::string sizes_of(const Model& m) {
  return "N=" + std::to_string(m.batch) + " pixels " + std::to_string(m.sequence) +
         " C=" + std::to_string(m.width);
}

void add_convolution(const Convolution& c, const std::string& sizes, std::vector<Row>& list) {
  list.push_back({.op = "conv2d_forward", .sizes = sizes, .prepare = [c](Memory& memory) {
                    return conv2d_forward(memory, c);
                  }});
  list.push_back({.op = "conv2d_backward", .sizes = sizes, .prepare = [c](Memory& memory) {
                    return conv2d_backward(memory, c);
                  }});
}

}  // namespace

void add_conv_rows(const Model& model, std::vector<Row>& list) {
  const Model m = narrow(model);
  const std::string sizes = sizes_of(m);
  const auto add = [&](const char* op, Call (*prepare)(Memory&, const Model&)) {
    list.push_back({.op = op, .sizes = sizes, .prepare = [m, prepare](Memory& memory) {
                      return prepare(memory, m);
                    }});
  };
  add_convolution({.shape = conv_shape(m), .dtype = m.dtype}, sizes, list);
  add("batchnorm_sums", batchnorm_sums);
  add("batchnorm_moments", batchnorm_moments);
  add("batchnorm_forward", batchnorm_forward);
  add("batchnorm_backward_sums", batchnorm_backward_sums);
  add("batchnorm_backward", batchnorm_backward);
  add("batchnorm_running", batchnorm_running);
  add("pool_forward", pool_forward);
  add("pool_backward", pool_backward);
}

Result<std::vector<Row>> cudnn_conv_rows(const Model& model, kernels::Device device) {
  const Model m = narrow(model);
  Convolution c{.shape = conv_shape(m), .dtype = m.dtype};
  TRY_ASSIGN(c.prepared,
             kernels::dnn::prepare_conv2d(device, {.shape = c.shape, .dtype = c.dtype}));
  if (!c.prepared.refusals().empty()) return unavailable(c.prepared.refusals());
  std::vector<Row> rows;
  add_convolution(c, sizes_of(m) + " cuDNN", rows);
  return rows;
}

}  // namespace lockstep::bench
