#include "bench/kernels/rows.h"

namespace lockstep::bench {

namespace {

std::string text(const char* name, int64_t value) {
  return std::string(name) + "=" + std::to_string(value);
}

struct Product {
  kernels::MatmulShape shape;
  bool bias = true;
  bool gelu = false;   // y is followed by GELU
  bool after = false;  // x is the GELU of another product's y
};

std::string sizes_of(const Product& p, kernels::Precision precision) {
  return text("M", p.shape.m) + " " + text("N", p.shape.n) + " " + text("K", p.shape.k) +
         (precision == kernels::Precision::kBf16 ? " bf16" : " fp32");
}

kernels::DType weight_dtype(const Model& model) {
  return model.precision == kernels::Precision::kBf16 ? kernels::DType::kBf16 : model.dtype;
}

Call forward(Memory& memory, const Product& p, const Model& model) {
  const auto& [m, n, k] = p.shape;
  const kernels::DeviceType type = memory.bench_device().device().type;
  return memory.call(
      &kernels::OpTable::matmul_forward,
      kernels::MatmulForward{
          .x = memory.numbers(m * k, model.dtype),
          .weight = memory.numbers(n * k, weight_dtype(model)),
          .bias = p.bias ? memory.numbers(n, model.dtype) : kernels::View(),
          .y = memory.numbers(m * n, model.dtype),
          .pre_activation = p.gelu ? memory.numbers(m * n, model.dtype) : kernels::View(),
          .m = m,
          .n = n,
          .k = k,
          .activation = p.gelu ? kernels::Activation::kGelu : kernels::Activation::kNone,
          .precision = model.precision,
          .workspace =
              memory.workspace(kernels::matmul_forward_workspace(p.shape, model.precision, type))});
}

Call backward(Memory& memory, const Product& p, const Model& model) {
  const auto& [m, n, k] = p.shape;
  const kernels::DeviceType type = memory.bench_device().device().type;
  return memory.call(
      &kernels::OpTable::matmul_backward,
      kernels::MatmulBackward{
          .dy = memory.numbers(m * n, model.dtype),
          .x = memory.numbers(m * k, model.dtype),
          .weight = memory.numbers(n * k, weight_dtype(model)),
          .x_pre_activation = p.after ? memory.numbers(m * k, model.dtype) : kernels::View(),
          .dx = memory.numbers(m * k, model.dtype),
          .dweight = memory.floats(n * k),
          .dbias = p.bias ? kernels::View(memory.floats(n)) : kernels::View(),
          .m = m,
          .n = n,
          .k = k,
          .precision = model.precision,
          .workspace = memory.workspace(
              kernels::matmul_backward_workspace(p.shape, model.precision, type))});
}

}  // namespace

// The products of a model: q, k and v together; the output of attention; the input of the hidden
// layer, with GELU; its output, whose gradient goes through GELU; the head.
std::vector<Row> matmul_rows(const Model& m) {
  const int64_t rows = m.batch * m.sequence, c = m.width;
  std::vector<Row> list;
  for (const Product& p : {Product{.shape = {rows, 3 * c, c}}, Product{.shape = {rows, c, c}},
                           Product{.shape = {rows, 4 * c, c}, .gelu = true},
                           Product{.shape = {rows, c, 4 * c}, .after = true},
                           Product{.shape = {m.head_rows, m.columns, c}, .bias = false}}) {
    const std::string sizes = sizes_of(p, m.precision);
    list.push_back({.op = "matmul_forward",
                    .sizes = sizes + (p.gelu ? " GELU" : ""),
                    .prepare = [p, m](Memory& memory) { return forward(memory, p, m); },
                    .product = p.shape,
                    .precision = m.precision});
    list.push_back({.op = "matmul_backward",
                    .sizes = sizes + (p.after ? " dGELU" : ""),
                    .prepare = [p, m](Memory& memory) { return backward(memory, p, m); }});
  }
  return list;
}

}  // namespace lockstep::bench
