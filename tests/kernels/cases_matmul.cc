// Matrix products: y = gelu(x) * weight^T + bias and its gradients.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "tests/kernels/op_cases.h"

namespace lockstep::kernels::op_cases {

namespace {

size_t index(int64_t i) {
  return static_cast<size_t>(i);
}

double gelu_of(double x) {
  const double u = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1.0 + std::tanh(u));
}

// Without GELU the case computes y. With GELU it is the second product of an MLP: the input is
// x_pre, gelu_forward computes x = gelu(x_pre), and activated = gelu(y) checks the product's fused
// activation.
void matmul_reference(const MatmulSizes& sizes, Doubles& d) {
  const auto [m, n, k] = sizes.shape;
  std::vector<double> x = d["x"];
  if (sizes.gelu) std::ranges::transform(x, x.begin(), gelu_of);
  const std::vector<double>& weight = d["weight"];
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = sizes.bias ? d["bias"][index(j)] : 0.0;
      for (int64_t l = 0; l < k; ++l) sum += x[index(i * k + l)] * weight[index(j * k + l)];
      d["y"][index(i * n + j)] = sum;
      if (sizes.gelu) d["activated"][index(i * n + j)] = gelu_of(sum);
    }
  }
}

}  // namespace

OpCase matmul(const MatmulSizes& s) {
  const auto [m, n, k] = s.shape;
  const bool bf16 = s.precision == Precision::kBf16;
  OpCase c;
  c.name = std::string("matmul ") + (bf16 ? "bf16" : "f32") + " M=" + std::to_string(m) +
           " N=" + std::to_string(n) + " K=" + std::to_string(k) + (s.bias ? "" : " no bias") +
           (s.gelu ? " gelu" : "");
  c.inputs = {{"x", m * k, -1.0f, 1.0f, bf16}, {"weight", n * k, -1.0f, 1.0f, bf16}};
  c.outputs = {{"y", m * n}};
  c.loss_outputs = {"y"};
  c.gradients = {{"x"}, {"weight", true}};
  if (s.bias) {
    c.inputs.push_back({"bias", n});
    c.gradients.push_back({"bias", true});
  }
  if (s.gelu) {
    c.outputs.push_back({"activated", m * n});
    c.outputs.push_back({"x_activated", m * k});
  }
  // GELU's results are not exact in bf16, so with kBf16 the factor x is rounded.
  c.tolerance = bf16 && s.gelu ? 1e-2 : 5e-6;
  c.gradient_tolerance = bf16 && s.gelu ? 1e-2 : 1e-5;
  // In a bf16 run x is also rounded after GELU, and y before it if the library has no fused
  // epilogue.
  c.activations = {"x", "weight", "y", "activated", "x_activated"};
  // A bias is rounded too, before it is added.
  c.bf16_tolerance = s.gelu ? 1.0 / 64.0 : s.bias ? 1.0 / 128.0 : 1.0 / 256.0;
  c.bf16_gradient_tolerance = s.gelu ? 1.0 / 64.0 : 1.0 / 128.0;
  c.any_threads = false;
  for (const DeviceType type : {DeviceType::kCpu, DeviceType::kCuda}) {
    c.workspace_bytes =
        std::max({c.workspace_bytes, matmul_forward_workspace(s.shape, s.precision, type),
                  matmul_backward_workspace(s.shape, s.precision, type)});
  }
  c.forward = [s](const OpTable& ops, Stream& stream, Tensors& t) {
    const auto [m, n, k] = s.shape;
    View x = t.at("x");
    if (s.gelu) {
      ops.gelu_forward(stream, {.x = x, .y = t.at("x_activated"), .count = m * k});
      x = t.at("x_activated");
    }
    ops.matmul_forward(stream, {.x = x,
                                .weight = t.at("weight"),
                                .bias = s.bias ? t.at("bias") : nullptr,
                                .y = s.gelu ? t.at("activated") : t.at("y"),
                                .pre_activation = s.gelu ? t.at("y") : nullptr,
                                .m = m,
                                .n = n,
                                .k = k,
                                .activation = s.gelu ? Activation::kGelu : Activation::kNone,
                                .precision = s.precision,
                                .workspace = t.workspace.workspace()});
  };
  c.backward = [s](const OpTable& ops, Stream& stream, Tensors& t) {
    ops.matmul_backward(stream, {.dy = t.at("dy"),
                                 .x = s.gelu ? t.at("x_activated") : t.at("x"),
                                 .weight = t.at("weight"),
                                 .x_pre_activation = s.gelu ? t.at("x") : nullptr,
                                 .dx = t.at("dx"),
                                 .dweight = t.at("dweight"),
                                 .dbias = s.bias ? t.at("dbias") : nullptr,
                                 .m = s.shape.m,
                                 .n = s.shape.n,
                                 .k = s.shape.k,
                                 .precision = s.precision,
                                 .workspace = t.workspace.workspace()});
  };
  c.reference = [s](Doubles& d, const Ints&) { matmul_reference(s, d); };
  return c;
}

}  // namespace lockstep::kernels::op_cases
