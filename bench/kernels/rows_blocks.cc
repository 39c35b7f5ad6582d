// Rows for the ops of a model's blocks, other than matrix products.
#include "bench/kernels/rows_parts.h"
#include "kernels/ops/dnn/dnn.h"

namespace lockstep::bench {

namespace {

std::string sizes_of(int64_t rows, int64_t width) {
  return "R=" + std::to_string(rows) + " C=" + std::to_string(width);
}

constexpr Range kPositive{0.5f, 1.5f};

Call layernorm_forward(Memory& memory, int64_t rows, int64_t width, DType dtype) {
  return memory.call(&OpTable::layernorm_forward,
                     LayerNormForward{.x = memory.numbers(rows * width, dtype),
                                      .residual = memory.numbers(rows * width, dtype),
                                      .residual_out = memory.numbers(rows * width, dtype),
                                      .weight = memory.floats(width),
                                      .bias = memory.floats(width),
                                      .y = memory.numbers(rows * width, dtype),
                                      .mean = memory.floats(rows),
                                      .rstd = memory.floats(rows),
                                      .rows = rows,
                                      .width = width});
}

Call layernorm_backward(Memory& memory, int64_t rows, int64_t width, DType dtype) {
  const DeviceType type = memory.bench_device().device().type;
  return memory.call(
      &OpTable::layernorm_backward,
      LayerNormBackward{.dy = memory.numbers(rows * width, dtype),
                        .h = memory.numbers(rows * width, dtype),
                        .weight = memory.floats(width),
                        .mean = memory.floats(rows),
                        .rstd = memory.floats(rows, kPositive),
                        .dresidual = memory.numbers(rows * width, dtype),
                        .dx = memory.numbers(rows * width, dtype),
                        .dweight = memory.floats(width),
                        .dbias = memory.floats(width),
                        .rows = rows,
                        .width = width,
                        .workspace = memory.workspace(layernorm_backward_workspace(width, type))});
}

Call rmsnorm_forward(Memory& memory, int64_t rows, int64_t width, DType dtype) {
  return memory.call(&OpTable::rmsnorm_forward,
                     RmsNormForward{.x = memory.numbers(rows * width, dtype),
                                    .residual = memory.numbers(rows * width, dtype),
                                    .residual_out = memory.numbers(rows * width, dtype),
                                    .weight = memory.floats(width),
                                    .y = memory.numbers(rows * width, dtype),
                                    .rrms = memory.floats(rows),
                                    .rows = rows,
                                    .width = width});
}

Call rmsnorm_backward(Memory& memory, int64_t rows, int64_t width, DType dtype) {
  const DeviceType type = memory.bench_device().device().type;
  return memory.call(
      &OpTable::rmsnorm_backward,
      RmsNormBackward{.dy = memory.numbers(rows * width, dtype),
                      .h = memory.numbers(rows * width, dtype),
                      .weight = memory.floats(width),
                      .rrms = memory.floats(rows, kPositive),
                      .dresidual = memory.numbers(rows * width, dtype),
                      .dx = memory.numbers(rows * width, dtype),
                      .dweight = memory.floats(width),
                      .rows = rows,
                      .width = width,
                      .workspace = memory.workspace(rmsnorm_backward_workspace(width, type))});
}

using OfRows = Call (*)(Memory&, int64_t rows, int64_t width, DType dtype);

void add_norms(const Model& m, std::vector<Row>& list) {
  const int64_t rows = m.batch * m.sequence;
  for (const auto& [op, prepare] :
       {std::pair<const char*, OfRows>{"layernorm_forward", layernorm_forward},
        {"layernorm_backward", layernorm_backward},
        {"rmsnorm_forward", rmsnorm_forward},
        {"rmsnorm_backward", rmsnorm_backward}}) {
    list.push_back(
        {.op = op, .sizes = sizes_of(rows, m.width) + " residual", .prepare = [=](Memory& memory) {
           return prepare(memory, rows, m.width, m.dtype);
         }});
  }
}

void add_activations(const Model& m, std::vector<Row>& list) {
  const int64_t rows = m.batch * m.sequence, width = 4 * m.width, count = rows * width;
  const DType dtype = m.dtype;
  const std::string sizes = sizes_of(rows, width);
  list.push_back({.op = "gelu_forward", .sizes = sizes, .prepare = [=](Memory& memory) {
                    return memory.call(&OpTable::gelu_forward,
                                       GeluForward{.x = memory.numbers(count, dtype),
                                                   .y = memory.numbers(count, dtype),
                                                   .count = count});
                  }});
  list.push_back({.op = "gelu_backward", .sizes = sizes, .prepare = [=](Memory& memory) {
                    return memory.call(&OpTable::gelu_backward,
                                       GeluBackward{.x = memory.numbers(count, dtype),
                                                    .dy = memory.numbers(count, dtype),
                                                    .dx = memory.numbers(count, dtype),
                                                    .count = count});
                  }});
  list.push_back({.op = "swiglu_forward", .sizes = sizes, .prepare = [=](Memory& memory) {
                    return memory.call(&OpTable::swiglu_forward,
                                       SwigluForward{.gate_up = memory.numbers(2 * count, dtype),
                                                     .y = memory.numbers(count, dtype),
                                                     .rows = rows,
                                                     .width = width});
                  }});
  list.push_back({.op = "swiglu_backward", .sizes = sizes, .prepare = [=](Memory& memory) {
                    return memory.call(&OpTable::swiglu_backward,
                                       SwigluBackward{.gate_up = memory.numbers(2 * count, dtype),
                                                      .dy = memory.numbers(count, dtype),
                                                      .dgate_up = memory.numbers(2 * count, dtype),
                                                      .rows = rows,
                                                      .width = width});
                  }});
}

Call rotary(Memory& memory, const AttentionShape& shape, DType dtype) {
  std::vector<float> table(static_cast<size_t>(shape.sequence * shape.head_dim));
  rotary_table({.head_dim = shape.head_dim}, shape.sequence, table.data());
  return memory.call(
      &OpTable::rotary,
      Rotary{.qkv = memory.numbers(shape.batch * shape.sequence * shape.qkv_width(), dtype),
             .table = memory.values(table),
             .shape = shape});
}

struct Attention {
  AttentionShape shape;
  DType dtype = DType::kF32;
  AttentionBy by = AttentionBy::kOwn;
};

Workspace workspace_of(Memory& memory, const Attention& a) {
  const Device device = memory.bench_device().device();
  if (a.by == AttentionBy::kOwn) {
    return memory.workspace(attention_workspace(a.shape, device.type));
  }
  const Result<size_t> bytes = dnn::prepare_attention(device, a.shape);
  if (bytes.ok()) return memory.workspace(*bytes);
  memory.note(bytes.error());
  return {};
}

AttentionForward attention(Memory& memory, const Attention& a) {
  const AttentionShape& s = a.shape;
  const int64_t rows = s.batch * s.sequence;
  return {.qkv = memory.numbers(rows * s.qkv_width(), a.dtype),
          .out = memory.numbers(rows * s.width(), a.dtype),
          .lse = memory.floats(rows * s.heads),
          .shape = s,
          .workspace = workspace_of(memory, a),
          .by = a.by};
}

// Runs forward first, because backward reads its log-sum-exp.
Call attention_backward(Memory& memory, const Attention& a) {
  const AttentionForward forward = attention(memory, a);
  const int64_t rows = a.shape.batch * a.shape.sequence;
  const AttentionBackward backward{.dout = memory.numbers(rows * a.shape.width(), a.dtype),
                                   .qkv = forward.qkv,
                                   .out = forward.out,
                                   .lse = forward.lse,
                                   .dqkv = memory.numbers(rows * a.shape.qkv_width(), a.dtype),
                                   .shape = a.shape,
                                   .workspace = forward.workspace,
                                   .by = a.by};
  if (memory.status().ok())
    memory.bench_device().ops.attention_forward(memory.bench_device().stream, forward);
  return memory.call(&OpTable::attention_backward, backward);
}

}  // namespace

std::vector<Row> attention_rows(const AttentionShape& s, DType dtype, AttentionBy by) {
  std::string sizes = "B=" + std::to_string(s.batch) + " T=" + std::to_string(s.sequence) +
                      " NH=" + std::to_string(s.heads) + " HD=" + std::to_string(s.head_dim);
  if (s.kv_heads != s.heads) sizes += " KVH=" + std::to_string(s.kv_heads);
  if (by == AttentionBy::kCudnn) sizes += " cuDNN";
  const Attention a{s, dtype, by};
  return {{.op = "attention_forward",
           .sizes = sizes,
           .prepare =
               [a](Memory& memory) {
                 return memory.call(&OpTable::attention_forward, attention(memory, a));
               }},
          {.op = "attention_backward", .sizes = sizes, .prepare = [a](Memory& memory) {
             return attention_backward(memory, a);
           }}};
}

void add_block_rows(const Model& m, std::vector<Row>& list) {
  const AttentionShape shape{.batch = m.batch,
                             .sequence = m.sequence,
                             .heads = m.heads,
                             .head_dim = m.width / m.heads,
                             .kv_heads = m.heads};
  for (Row& row : attention_rows(shape, m.dtype)) list.push_back(std::move(row));
  list.push_back({.op = "rotary", .sizes = list.back().sizes, .prepare = [=](Memory& memory) {
                    return rotary(memory, shape, m.dtype);
                  }});
  add_norms(m, list);
  add_activations(m, list);
}

}  // namespace lockstep::bench
