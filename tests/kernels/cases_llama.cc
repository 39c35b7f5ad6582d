// Ops that Llama needs and GPT-2 does not: SwiGLU, rotary embedding.
#include <cmath>

#include "tests/kernels/op_cases.h"

namespace lockstep::kernels::op_cases {

namespace {

size_t index(int64_t i) {
  return static_cast<size_t>(i);
}

std::string text(int64_t n) {
  return std::to_string(n);
}

// Rotates one row: heads of queries, then of keys. Values are copied unchanged.
void rotary_row_reference(const AttentionShape& s, int64_t row, Doubles& d) {
  const std::vector<double>&qkv = d["qkv"], &table = d["table"];
  std::vector<double>& rotated = d["rotated"];
  const int64_t half = s.head_dim / 2, position = row % s.sequence;
  for (int64_t column = 0; column < s.qkv_width(); ++column) {
    const size_t at = index(row * s.qkv_width() + column);
    rotated[at] = qkv[at];
    if (column >= s.width() + s.kv_width()) continue;
    const int64_t i = column % s.head_dim;
    const double cosine = table[index(position * s.head_dim + i % half)];
    const double sine = table[index(position * s.head_dim + half + i % half)];
    const double partner = i < half ? -qkv[at + index(half)] : qkv[at - index(half)];
    rotated[at] = qkv[at] * cosine + partner * sine;
  }
}

}  // namespace

OpCase swiglu(const SwigluSizes& s) {
  const int64_t count = s.rows * s.width;
  OpCase c;
  c.name = "swiglu R=" + text(s.rows) + " H=" + text(s.width);
  c.inputs = {{"gate_up", 2 * count, -12.0f, 12.0f}};
  c.activations = {"gate_up", "y"};
  c.outputs = {{"y", count}};
  c.loss_outputs = {"y"};
  c.gradients = {{"gate_up"}};
  c.forward = [s](const OpTable& ops, Stream& stream, Tensors& t) {
    ops.swiglu_forward(
        stream, {.gate_up = t.at("gate_up"), .y = t.at("y"), .rows = s.rows, .width = s.width});
  };
  c.backward = [s](const OpTable& ops, Stream& stream, Tensors& t) {
    ops.swiglu_backward(stream, {.gate_up = t.at("gate_up"),
                                 .dy = t.at("dy"),
                                 .dgate_up = t.at("dgate_up"),
                                 .rows = s.rows,
                                 .width = s.width});
  };
  c.reference = [s](Doubles& d, const Ints&) {
    for (int64_t i = 0; i < s.rows * s.width; ++i) {
      const int64_t at = i / s.width * 2 * s.width + i % s.width;
      const double gate = d["gate_up"][index(at)], up = d["gate_up"][index(at + s.width)];
      d["y"][index(i)] = gate / (1.0 + std::exp(-gate)) * up;
    }
  };
  return c;
}

OpCase rotary(const AttentionShape& s) {
  const int64_t count = s.batch * s.sequence * s.qkv_width();
  OpCase c;
  c.name = "rotary B=" + text(s.batch) + " T=" + text(s.sequence) + " NH=" + text(s.heads) +
           " KVH=" + text(s.kv_heads) + " HD=" + text(s.head_dim);
  // Any table works: the op and its gradient are linear maps for any pairs in it.
  c.inputs = {{"qkv", count}, {"table", s.sequence * s.head_dim}};
  c.outputs = {{"rotated", count}};
  c.activations = {"qkv", "rotated"};
  c.loss_outputs = {"rotated"};
  c.gradients = {{"qkv"}};
  const auto copy_and_rotate = [s, count](const OpTable& ops, Stream& stream, Tensors& t,
                                          const std::string& from, const std::string& to) {
    ops.scale(stream, {.x = t.at(from), .out = t.at(to), .count = count});
    ops.rotary(
        stream,
        {.qkv = t.at(to), .table = t.at("table"), .shape = s, .inverse = from == "drotated"});
  };
  c.forward = [copy_and_rotate](const OpTable& ops, Stream& stream, Tensors& t) {
    copy_and_rotate(ops, stream, t, "qkv", "rotated");
  };
  c.backward = [copy_and_rotate](const OpTable& ops, Stream& stream, Tensors& t) {
    copy_and_rotate(ops, stream, t, "drotated", "dqkv");
  };
  c.reference = [s](Doubles& d, const Ints&) {
    for (int64_t row = 0; row < s.batch * s.sequence; ++row) rotary_row_reference(s, row, d);
  };
  return c;
}

}  // namespace lockstep::kernels::op_cases
