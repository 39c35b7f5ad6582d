// Layer norm and RMS norm.
#include <cmath>

#include "tests/kernels/op_cases.h"

namespace lockstep::kernels::op_cases {

namespace {

size_t index(int64_t i) {
  return static_cast<size_t>(i);
}

void layernorm_reference(const LayerNormSizes& sizes, Doubles& d) {
  const std::vector<double>&x = d["x"], &weight = d["weight"], &bias = d["bias"];
  const std::vector<double> none(x.size(), 0.0);
  const std::vector<double>& residual = sizes.residual ? d["residual"] : none;
  for (int64_t r = 0; r < sizes.rows; ++r) {
    std::vector<double> h(index(sizes.width));
    double mean = 0.0, variance = 0.0;
    for (int64_t i = 0; i < sizes.width; ++i) {
      const size_t at = index(r * sizes.width + i);
      h[index(i)] = x[at] + residual[at];
      mean += h[index(i)] / static_cast<double>(sizes.width);
    }
    for (const double value : h) {
      variance += (value - mean) * (value - mean) / static_cast<double>(sizes.width);
    }
    const double rstd = 1.0 / std::sqrt(variance + 1e-5);
    for (int64_t i = 0; i < sizes.width; ++i) {
      const size_t at = index(r * sizes.width + i);
      d["y"][at] = (h[index(i)] - mean) * rstd * weight[index(i)] + bias[index(i)];
      if (sizes.residual) d["residual_out"][at] = h[index(i)];
    }
  }
}

void rmsnorm_reference(const LayerNormSizes& sizes, Doubles& d) {
  const std::vector<double>&x = d["x"], &weight = d["weight"];
  const std::vector<double> none(x.size(), 0.0);
  const std::vector<double>& residual = sizes.residual ? d["residual"] : none;
  for (int64_t r = 0; r < sizes.rows; ++r) {
    double squares = 0.0;
    for (int64_t i = 0; i < sizes.width; ++i) {
      const double h = x[index(r * sizes.width + i)] + residual[index(r * sizes.width + i)];
      squares += h * h;
    }
    const double rrms = 1.0 / std::sqrt(squares / static_cast<double>(sizes.width) + 1e-5);
    d["rrms"][index(r)] = rrms;
    for (int64_t i = 0; i < sizes.width; ++i) {
      const size_t at = index(r * sizes.width + i);
      const double h = x[at] + residual[at];
      d["y"][at] = h * rrms * weight[index(i)];
      if (sizes.residual) d["residual_out"][at] = h;
    }
  }
}

// Returns the part that both norms share.
OpCase norm(const std::string& name, const LayerNormSizes& s) {
  const int64_t count = s.rows * s.width;
  OpCase c;
  c.name = name + " R=" + std::to_string(s.rows) + " C=" + std::to_string(s.width) +
           (s.residual ? " residual" : "");
  c.inputs = {{"x", count}, {"weight", s.width}};
  c.outputs = {{"y", count}};
  c.loss_outputs = {"y"};
  c.gradients = {{"x"}, {"weight", true}};
  if (s.residual) {
    c.inputs.push_back({"residual", count});
    c.outputs.push_back({"residual_out", count});
    c.loss_outputs.push_back("residual_out");
  }
  c.activations = {"x", "y", "residual", "residual_out"};
  c.tolerance = 5e-6;
  // With a residual, h is rounded as well, and the norm amplifies errors of small values.
  c.bf16_tolerance = s.residual ? 1.0 / 64.0 : 1.0 / 256.0;
  c.bf16_gradient_tolerance = s.residual ? 1.0 / 16.0 : 1.0 / 128.0;
  // With one column dx is a difference of equal values; layer norm multiplies it by
  // 1/sqrt(epsilon).
  if (s.width == 1) c.gradient_tolerance = 1e-3;
  return c;
}

}  // namespace

OpCase layernorm(const LayerNormSizes& s) {
  OpCase c = norm("layernorm", s);
  c.inputs.push_back({"bias", s.width});
  c.outputs.push_back({"mean", s.rows});
  c.outputs.push_back({"rstd", s.rows});
  c.gradients.push_back({"bias", true});
  c.workspace_bytes = layernorm_backward_workspace(s.width, DeviceType::kCuda);
  c.forward = [s](const OpTable& ops, Stream& stream, Tensors& t) {
    ops.layernorm_forward(stream, {.x = t.at("x"),
                                   .residual = s.residual ? t.at("residual") : nullptr,
                                   .residual_out = s.residual ? t.at("residual_out") : nullptr,
                                   .weight = t.at("weight"),
                                   .bias = t.at("bias"),
                                   .y = t.at("y"),
                                   .mean = t.at("mean"),
                                   .rstd = t.at("rstd"),
                                   .rows = s.rows,
                                   .width = s.width});
  };
  c.backward = [s](const OpTable& ops, Stream& stream, Tensors& t) {
    ops.layernorm_backward(stream, {.dy = t.at("dy"),
                                    .h = s.residual ? t.at("residual_out") : t.at("x"),
                                    .weight = t.at("weight"),
                                    .mean = t.at("mean"),
                                    .rstd = t.at("rstd"),
                                    .dresidual = s.residual ? t.at("dresidual_out") : nullptr,
                                    .dx = t.at("dx"),
                                    .dweight = t.at("dweight"),
                                    .dbias = t.at("dbias"),
                                    .rows = s.rows,
                                    .width = s.width,
                                    .workspace = t.workspace.workspace()});
  };
  c.reference = [s](Doubles& d, const Ints&) { layernorm_reference(s, d); };
  return c;
}

OpCase rmsnorm(const LayerNormSizes& s) {
  OpCase c = norm("rmsnorm", s);
  c.outputs.push_back({"rrms", s.rows});
  c.workspace_bytes = rmsnorm_backward_workspace(s.width, DeviceType::kCuda);
  c.forward = [s](const OpTable& ops, Stream& stream, Tensors& t) {
    ops.rmsnorm_forward(stream, {.x = t.at("x"),
                                 .residual = s.residual ? t.at("residual") : nullptr,
                                 .residual_out = s.residual ? t.at("residual_out") : nullptr,
                                 .weight = t.at("weight"),
                                 .y = t.at("y"),
                                 .rrms = t.at("rrms"),
                                 .rows = s.rows,
                                 .width = s.width});
  };
  c.backward = [s](const OpTable& ops, Stream& stream, Tensors& t) {
    ops.rmsnorm_backward(stream, {.dy = t.at("dy"),
                                  .h = s.residual ? t.at("residual_out") : t.at("x"),
                                  .weight = t.at("weight"),
                                  .rrms = t.at("rrms"),
                                  .dresidual = s.residual ? t.at("dresidual_out") : nullptr,
                                  .dx = t.at("dx"),
                                  .dweight = t.at("dweight"),
                                  .rows = s.rows,
                                  .width = s.width,
                                  .workspace = t.workspace.workspace()});
  };
  c.reference = [s](Doubles& d, const Ints&) { rmsnorm_reference(s, d); };
  return c;
}

}  // namespace lockstep::kernels::op_cases
