// Ops that a convolutional network needs: convolution, batch normalisation, pooling.
#include <algorithm>
#include <cmath>

#include "tests/kernels/op_cases.h"

namespace lockstep::kernels::op_cases {

namespace {

constexpr double kEpsilon = 1e-5;

double& at(std::vector<double>& values, int64_t i) {
  return values[static_cast<size_t>(i)];
}

std::string text_of(const Conv2dShape& s) {
  return "N=" + std::to_string(s.batch) + " " + std::to_string(s.height) + "x" +
         std::to_string(s.width) + "x" + std::to_string(s.channels) + " filters " +
         std::to_string(s.filters) + " of " + std::to_string(s.filter_height) + "x" +
         std::to_string(s.filter_width) + " stride " + std::to_string(s.stride) + " padding " +
         std::to_string(s.padding) + " groups " + std::to_string(s.groups);
}

// Calls body(output pixel, input pixel, tap) for all pairs of pixels that a filter or window joins.
template <class Body>
void for_pairs(const Conv2dShape& s, Body body) {
  for (int64_t n = 0; n < s.batch; ++n) {
    for (int64_t p = 0; p < s.out_height(); ++p) {
      for (int64_t q = 0; q < s.out_width(); ++q) {
        for (int64_t tap = 0; tap < s.filter_height * s.filter_width; ++tap) {
          const int64_t h = p * s.stride - s.padding + tap / s.filter_width;
          const int64_t w = q * s.stride - s.padding + tap % s.filter_width;
          if (h < 0 || h >= s.height || w < 0 || w >= s.width) continue;
          body((n * s.out_height() + p) * s.out_width() + q, (n * s.height + h) * s.width + w, tap);
        }
      }
    }
  }
}

void convolve(const Conv2dShape& s, Doubles& d) {
  const int64_t channels = s.channels / s.groups, filters = s.filters / s.groups;
  for (int64_t i = 0; i < s.out_count(); ++i) at(d["y"], i) = at(d["bias"], i % s.filters);
  for_pairs(s, [&](int64_t out, int64_t in, int64_t tap) {
    for (int64_t k = 0; k < s.filters; ++k) {
      for (int64_t c = 0; c < channels; ++c) {
        at(d["y"], out * s.filters + k) +=
            at(d["x"], in * s.channels + k / filters * channels + c) *
            at(d["weight"], k * s.filter_count() + tap * channels + c);
      }
    }
  });
}

// The pool's windows as filters.
Conv2dShape windows_of(const PoolShape& s) {
  return {.batch = s.batch,
          .height = s.height,
          .width = s.width,
          .channels = s.channels,
          .filters = s.channels,
          .filter_height = s.window_height,
          .filter_width = s.window_width,
          .stride = s.stride,
          .padding = s.padding};
}

void normalise(const BatchNormSizes& sizes, Doubles& d) {
  for (int64_t c = 0; c < sizes.channels; ++c) {
    double mean = 0, variance = 0;
    for (int64_t r = 0; r < sizes.rows; ++r) mean += at(d["x"], r * sizes.channels + c);
    mean /= static_cast<double>(sizes.rows);
    for (int64_t r = 0; r < sizes.rows; ++r) {
      variance += std::pow(at(d["x"], r * sizes.channels + c) - mean, 2);
    }
    variance /= static_cast<double>(sizes.rows);
    at(d["mean"], c) = mean;
    at(d["variance"], c) = variance;
    for (int64_t r = 0; r < sizes.rows; ++r) {
      const int64_t i = r * sizes.channels + c;
      double y = (at(d["x"], i) - mean) / std::sqrt(variance + kEpsilon) * at(d["weight"], c) +
                 at(d["bias"], c);
      if (sizes.residual) y += at(d["residual"], i);
      at(d["y"], i) = sizes.relu ? std::max(y, 0.0) : y;
    }
  }
}

void batchnorm_backward_of(const BatchNormSizes& sizes, const OpTable& ops, Stream& stream,
                           Tensors& t) {
  if (sizes.residual) ops.fill(stream, {.out = t.at("dresidual"), .count = sizes.count()});
  ops.batchnorm_backward_sums(stream,
                              {.dy = t.at("dy"),
                               .y = sizes.relu ? ConstView(t.at("y")) : ConstView(),
                               .x = t.at("x"),
                               .mean = t.at("mean"),
                               .variance = t.at("variance"),
                               .dresidual = sizes.residual ? View(t.at("dresidual")) : View(),
                               .adds_dresidual = sizes.adds,
                               .sums = t.double_at("sums"),
                               .dweight = t.at("dweight"),
                               .dbias = t.at("dbias"),
                               .rows = sizes.rows,
                               .channels = sizes.channels,
                               .workspace = {t.workspace.data(), t.workspace.bytes()}});
  ops.batchnorm_backward(stream, {.dy = t.at("dy"),
                                  .x = t.at("x"),
                                  .mean = t.at("mean"),
                                  .variance = t.at("variance"),
                                  .weight = t.at("weight"),
                                  .sums = t.double_at("sums"),
                                  .dx = t.at("dx"),
                                  .rows = sizes.rows,
                                  .channels = sizes.channels});
}

}  // namespace

OpCase conv2d(const Conv2dShape& shape, bool adds_dx, bool is_split, const Conv2dKernels& by) {
  OpCase c;
  c.name = std::string("conv2d ") + (by == Conv2dKernels() ? "" : "by cuDNN ") + text_of(shape) +
           (adds_dx ? " adds dx" : "") + (is_split ? " split" : "");
  c.inputs = {{"x", shape.in_count()}, {"weight", shape.weight_count()}, {"bias", shape.filters}};
  c.outputs = {{"y", shape.out_count()}};
  c.workspace_bytes = std::max(conv2d_workspace(shape, DeviceType::kCpu),
                               conv2d_workspace(shape, DeviceType::kCuda));
  c.activations = {"x", "weight", "y"};
  c.loss_outputs = {"y"};
  c.gradients = {{"x", adds_dx, true}, {"weight", true}, {"bias", true}};
  c.any_threads = false;
  if (by.forward == Conv2dBy::kCudnn) c.bf16_tolerance *= 2;  // rounded before the bias and after
  c.forward = [=](const OpTable& ops, Stream& stream, Tensors& t) {
    ops.conv2d_forward(stream, {.x = t.at("x"),
                                .weight = t.at("weight"),
                                .bias = t.at("bias"),
                                .y = t.at("y"),
                                .shape = shape,
                                .workspace = {t.workspace.data(), t.workspace.bytes()},
                                .by = by});
  };
  c.backward = [=](const OpTable& ops, Stream& stream, Tensors& t) {
    Conv2dBackward inputs{.dy = t.at("dy"),
                          .weight = t.at("weight"),
                          .dx = t.at("dx"),
                          .shape = shape,
                          .adds_dx = adds_dx,
                          .workspace = {t.workspace.data(), t.workspace.bytes()},
                          .by = by};
    Conv2dBackward weights = inputs;
    if (is_split) {
      ops.conv2d_backward(stream, inputs);
      weights.dx = {};
      weights.weight = {};
    }
    weights.x = t.at("x");
    weights.dweight = t.at("dweight");
    weights.dbias = t.at("dbias");
    ops.conv2d_backward(stream, weights);
  };
  c.reference = [=](Doubles& d, const Ints&) { convolve(shape, d); };
  return c;
}

OpCase batchnorm(const BatchNormSizes& sizes) {
  OpCase c;
  c.name = "batchnorm R=" + std::to_string(sizes.rows) + " C=" + std::to_string(sizes.channels) +
           (sizes.residual ? " residual" : "") + (sizes.relu ? " relu" : "") +
           (sizes.adds ? " adds" : "");
  c.inputs = {{"x", sizes.count(), -1.0f, 3.0f},
              {"shift", sizes.channels},
              {"weight", sizes.channels, 0.5f, 1.5f},
              {"bias", sizes.channels}};
  if (sizes.residual) c.inputs.push_back({"residual", sizes.count()});
  c.outputs = {{"y", sizes.count()},
               {"mean", sizes.channels},
               {"variance", sizes.channels},
               {"sums", batchnorm_sums_count(sizes.channels)}};
  c.double_outputs = {"sums"};
  c.workspace_bytes = std::max(batchnorm_workspace(sizes.channels, DeviceType::kCpu),
                               batchnorm_workspace(sizes.channels, DeviceType::kCuda));
  c.activations = {"x", "y", "residual"};
  c.loss_outputs = {"y"};
  c.gradients = {{"x"}, {"weight", true}, {"bias", true}};
  if (sizes.residual) c.gradients.push_back({"residual"});
  c.tolerance = 4e-6;
  c.gradient_tolerance = 4e-5;
  c.bf16_gradient_tolerance = 1.0 / 32.0;
  c.forward = [=](const OpTable& ops, Stream& stream, Tensors& t) {
    ops.batchnorm_sums(stream, {.x = t.at("x"),
                                .shift = t.at("shift"),
                                .sums = t.double_at("sums"),
                                .rows = sizes.rows,
                                .channels = sizes.channels,
                                .workspace = {t.workspace.data(), t.workspace.bytes()}});
    ops.batchnorm_moments(stream, {.sums = t.double_at("sums"),
                                   .shift = t.at("shift"),
                                   .mean = t.at("mean"),
                                   .variance = t.at("variance"),
                                   .channels = sizes.channels});
    ops.batchnorm_forward(stream,
                          {.x = t.at("x"),
                           .mean = t.at("mean"),
                           .variance = t.at("variance"),
                           .weight = t.at("weight"),
                           .bias = t.at("bias"),
                           .residual = sizes.residual ? ConstView(t.at("residual")) : ConstView(),
                           .y = t.at("y"),
                           .rows = sizes.rows,
                           .channels = sizes.channels,
                           .relu = sizes.relu});
  };
  c.backward = [=](const OpTable& ops, Stream& stream, Tensors& t) {
    batchnorm_backward_of(sizes, ops, stream, t);
  };
  c.reference = [=](Doubles& d, const Ints&) { normalise(sizes, d); };
  return c;
}

OpCase batchnorm_running(int64_t channels) {
  OpCase c;
  c.name = "batchnorm_running C=" + std::to_string(channels);
  c.inputs = {{"mean", channels},         {"variance", channels, 0.0f, 1.0f},
              {"running_mean", channels}, {"running_variance", channels, 0.0f, 1.0f},
              {"dmean", channels},        {"dvariance", channels},
              {"x", 5 * channels},        {"shift", channels}};
  c.outputs = {{"sums", batchnorm_sums_count(channels)},
               {"new_dmean", channels},
               {"new_dvariance", channels}};
  c.double_outputs = {"sums"};
  c.workspace_bytes = std::max(batchnorm_workspace(channels, DeviceType::kCpu),
                               batchnorm_workspace(channels, DeviceType::kCuda));
  c.forward = [=](const OpTable& ops, Stream& stream, Tensors& t) {
    ops.batchnorm_sums(stream, {.x = t.at("x"),
                                .shift = t.at("shift"),
                                .sums = t.double_at("sums"),
                                .rows = 5,
                                .channels = channels,
                                .workspace = {t.workspace.data(), t.workspace.bytes()}});
    t.copy("dmean", "new_dmean");
    t.copy("dvariance", "new_dvariance");
    ops.batchnorm_running(stream, {.mean = t.at("mean"),
                                   .variance = t.at("variance"),
                                   .running_mean = t.at("running_mean"),
                                   .running_variance = t.at("running_variance"),
                                   .rows = t.double_at("sums") + 2 * channels,
                                   .dmean = t.at("new_dmean"),
                                   .dvariance = t.at("new_dvariance"),
                                   .channels = channels,
                                   .factor = 0.25f});
  };
  c.reference = [=](Doubles& d, const Ints&) {
    for (int64_t i = 0; i < channels; ++i) {
      at(d["new_dmean"], i) =
          at(d["dmean"], i) + 0.25 * (at(d["running_mean"], i) - at(d["mean"], i));
      at(d["new_dvariance"], i) = at(d["dvariance"], i) + 0.25 * (at(d["running_variance"], i) -
                                                                  at(d["variance"], i) * 5.0 / 4.0);
    }
  };
  return c;
}

OpCase pool(const PoolShape& shape, Pooling kind) {
  const Conv2dShape windows = windows_of(shape);
  OpCase c;
  c.name = std::string("pool ") + (kind == Pooling::kMax ? "max " : "average ") + text_of(windows);
  c.inputs = {{"x", shape.in_count(), -3.0f, 3.0f}};
  c.ints["places"] = std::vector<int32_t>(static_cast<size_t>(shape.out_count()), -1);
  c.outputs = {{"y", shape.out_count()}};
  c.activations = {"x", "y"};
  c.loss_outputs = {"y"};
  c.gradients = {{"x"}};
  c.bf16_gradient_tolerance = 1.0 / 64.0;
  const bool is_max = kind == Pooling::kMax;
  c.forward = [=](const OpTable& ops, Stream& stream, Tensors& t) {
    ops.pool_forward(stream,
                     {.x = t.at("x"),
                      .y = t.at("y"),
                      .places = is_max ? const_cast<int32_t*>(t.ints_at("places")) : nullptr,
                      .shape = shape,
                      .kind = kind});
  };
  c.backward = [=](const OpTable& ops, Stream& stream, Tensors& t) {
    ops.pool_backward(stream, {.dy = t.at("dy"),
                               .places = is_max ? t.ints_at("places") : nullptr,
                               .dx = t.at("dx"),
                               .shape = shape,
                               .kind = kind});
  };
  c.reference = [=](Doubles& d, const Ints&) {
    std::ranges::fill(d["y"], is_max ? -1e9 : 0.0);
    const auto window = static_cast<double>(shape.window_height * shape.window_width);
    for_pairs(windows, [&](int64_t out, int64_t in, int64_t) {
      for (int64_t i = 0; i < shape.channels; ++i) {
        double& y = at(d["y"], out * shape.channels + i);
        const double x = at(d["x"], in * shape.channels + i);
        y = is_max ? std::max(y, x) : y + x / window;
      }
    });
  };
  return c;
}

std::vector<Conv2dShape> conv2d_shapes() {
  return {
      Conv2dShape{.batch = 1, .height = 1, .width = 1, .channels = 1, .filters = 1},
      Conv2dShape{.batch = 2,
                  .height = 5,
                  .width = 6,
                  .channels = 3,
                  .filters = 7,
                  .filter_height = 3,
                  .filter_width = 3,
                  .padding = 1},
      Conv2dShape{.batch = 3,
                  .height = 9,
                  .width = 8,
                  .channels = 4,
                  .filters = 6,
                  .filter_height = 3,
                  .filter_width = 2,
                  .stride = 2,
                  .padding = 1,
                  .groups = 2},
      Conv2dShape{.batch = 2,
                  .height = 7,
                  .width = 7,
                  .channels = 6,
                  .filters = 6,
                  .filter_height = 3,
                  .filter_width = 3,
                  .stride = 1,
                  .padding = 1,
                  .groups = 6},
      Conv2dShape{.batch = 2, .height = 6, .width = 6, .channels = 17, .filters = 33, .stride = 2},
      Conv2dShape{.batch = 4, .height = 4, .width = 4, .channels = 16, .filters = 32},
      Conv2dShape{.batch = 3,
                  .height = 4,
                  .width = 3,
                  .channels = 5,
                  .filters = 10,
                  .filter_height = 4,
                  .filter_width = 3},
      Conv2dShape{.batch = 2,
                  .height = 13,
                  .width = 13,
                  .channels = 3,
                  .filters = 16,
                  .filter_height = 7,
                  .filter_width = 7,
                  .stride = 2,
                  .padding = 3}};
}

Conv2dShape large_conv2d_shape() {
  return {.batch = 2,
          .height = 14,
          .width = 14,
          .channels = 64,
          .filters = 64,
          .filter_height = 3,
          .filter_width = 3,
          .padding = 1};
}

std::vector<OpCase> convnet_cases() {
  std::vector<OpCase> cases;
  for (const Conv2dShape& shape : conv2d_shapes()) {
    cases.push_back(conv2d(shape, false, false));
    cases.push_back(conv2d(shape, true, false));
    cases.push_back(conv2d(shape, true, true));
  }
  for (const BatchNormSizes& sizes :
       {BatchNormSizes{.rows = 2, .channels = 1}, BatchNormSizes{.rows = 37, .channels = 5},
        BatchNormSizes{.rows = 130, .channels = 17, .relu = true},
        BatchNormSizes{.rows = 1500, .channels = 33, .residual = true},
        BatchNormSizes{
            .rows = 70, .channels = 300, .residual = true, .relu = true, .adds = true}}) {
    cases.push_back(batchnorm(sizes));
  }
  cases.push_back(batchnorm_running(3));
  cases.push_back(batchnorm_running(40));
  for (const PoolShape& shape : {PoolShape{.batch = 1, .height = 1, .width = 1, .channels = 1},
                                 PoolShape{.batch = 2,
                                 .height = 6,
                                 .width = 7,
                                 .channels = 5,
                                 .window_height = 2,
                                 .window_width = 2,
                                 .stride = 2},
                                 PoolShape{.batch = 3,
                                 .height = 5,
                                 .width = 5,
                                 .channels = 17,
                                 .window_height = 3,
                                 .window_width = 2,
                                 .stride = 1},
                                 PoolShape{.batch = 2,
                                 .height = 4,
                                 .width = 4,
                                 .channels = 33,
                                 .window_height = 4,
                                 .window_width = 4}}) {
    cases.push_back(pool(shape, Pooling::kMax));
    cases.push_back(pool(shape, Pooling::kAverage));
  }
  cases.push_back(pool({.batch = 2,
                        .height = 9,
                        .width = 8,
                        .channels = 3,
                        .window_height = 3,
                        .window_width = 3,
                        .stride = 2,
                        .padding = 1},
                       Pooling::kMax));
  return cases;
}

}  // namespace lockstep::kernels::op_cases
