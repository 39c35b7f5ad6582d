// Rows for the ops of a model's blocks, other than matrix products.
#include "bench/kernels/rows_parts.h"
#include "kernels/ops/dnn/dnn.h"

namespace lockstep::bench {

namespace {

std::string sizes_of(int64_t rows, int64_t width) {
  return "R=" + std::to_string(rows) + " C=" + std::to_string(width);
}

constexpr Range kPositive{0.5f, 1.5f};

Call layernorm_forward(Memory& memory, int64_t rows, int64_t width, kernels::DType dtype) {
  return memory.call(&kernels::OpTable::layernorm_forward,
                     kernels::LayerNormForward{.x = memory.numbers(rows * width, dtype),
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

Call layernorm_backward(Memory& memory, int64_t rows, int64_t width, kernels::DType dtype) {
  const kernels::DeviceType type = memory.bench_device().device().type;
  return memory.call(
      &kernels::OpTable::layernorm_backward,
      kernels::LayerNormBackward{
          .dy = memory.numbers(rows * width, dtype),
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
          .workspace = memory.workspace(kernels::layernorm_backward_workspace(width, type))});
}

Call rmsnorm_forward(Memory& memory, int64_t rows, int64_t width, kernels::DType dtype) {
  return memory.call(&kernels::OpTable::rmsnorm_forward,
                     kernels::RmsNormForward{.x = memory.numbers(rows * width, dtype),
                                             .residual = memory.numbers(rows * width, dtype),
                                             .residual_out = memory.numbers(rows * width, dtype),
                                             .weight = memory.floats(width),
                                             .y = memory.numbers(rows * width, dtype),
                                             .rrms = memory.floats(rows),
                                             .rows = rows,
                                             .width = width});
}

Call rmsnorm_backward(Memory& memory, int64_t rows, int64_t width, kernels::DType dtype) {
  const kernels::DeviceType type = memory.bench_device().device().type;
  return memory.call(
      &kernels::OpTable::rmsnorm_backward,
      kernels::RmsNormBackward{
          .dy = memory.numbers(rows * width, dtype),
          .h = memory.numbers(rows * width, dtype),
          .weight = memory.floats(width),
          .rrms = memory.floats(rows, kPositive),
          .dresidual = memory.numbers(rows * width, dtype),
          .dx = memory.numbers(rows * width, dtype),
          .dweight = memory.floats(width),
          .rows = rows,
          .width = width,
          .workspace = memory.workspace(kernels::rmsnorm_backward_workspace(width, type))});
}

using OfRows = Call (*)(Memory&, int64_t rows, int64_t width, kernels::DType dtype);

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
  const kernels::DType dtype = m.dtype;
  const std::string sizes = sizes_of(rows, width);
  list.push_back({.op = "gelu_forward", .sizes = sizes, .prepare = [=](Memory& memory) {
                    return memory.call(&kernels::OpTable::gelu_forward,
                                       kernels::GeluForward{.x = memory.numbers(count, dtype),
                                                            .y = memory.numbers(count, dtype),
                                                            .count = count});
                  }});
  list.push_back({.op = "gelu_backward", .sizes = sizes, .prepare = [=](Memory& memory) {
                    return memory.call(&kernels::OpTable::gelu_backward,
                                       kernels::GeluBackward{.x = memory.numbers(count, dtype),
                                                             .dy = memory.numbers(count, dtype),
                                                             .dx = memory.numbers(count, dtype),
                                                             .count = count});
                  }});
  list.push_back({.op = "pointwise_forward", .sizes = sizes, .prepare = [=](Memory& memory) {
                    return memory.call(
                        &kernels::OpTable::pointwise_forward,
                        kernels::PointwiseForward{.x = memory.numbers(count, dtype),
                                                  .y = memory.numbers(count, dtype),
                                                  .count = count,
                                                  .function = kernels::Pointwise::kTanh});
                  }});
  list.push_back({.op = "pointwise_backward", .sizes = sizes, .prepare = [=](Memory& memory) {
                    return memory.call(
                        &kernels::OpTable::pointwise_backward,
                        kernels::PointwiseBackward{.y = memory.numbers(count, dtype),
                                                   .dy = memory.numbers(count, dtype),
                                                   .dx = memory.numbers(count, dtype),
                                                   .count = count,
                                                   .function = kernels::Pointwise::kTanh});
                  }});
  list.push_back({.op = "swiglu_forward", .sizes = sizes, .prepare = [=](Memory& memory) {
                    return memory.call(
                        &kernels::OpTable::swiglu_forward,
                        kernels::SwigluForward{.gate_up = memory.numbers(2 * count, dtype),
                                               .y = memory.numbers(count, dtype),
                                               .rows = rows,
                                               .width = width});
                  }});
  list.push_back({.op = "swiglu_backward", .sizes = sizes, .prepare = [=](Memory& memory) {
                    return memory.call(
                        &kernels::OpTable::swiglu_backward,
                        kernels::SwigluBackward{.gate_up = memory.numbers(2 * count, dtype),
                                                .dy = memory.numbers(count, dtype),
                                                .dgate_up = memory.numbers(2 * count, dtype),
                                                .rows = rows,
                                                .width = width});
                  }});
}

Call rotary(Memory& memory, const kernels::AttentionShape& shape, kernels::DType dtype) {
  std::vector<float> table(static_cast<size_t>(shape.sequence * shape.head_dim));
  kernels::rotary_table({.head_dim = shape.head_dim}, shape.sequence, table.data());
  return memory.call(&kernels::OpTable::rotary,
                     kernels::Rotary{.qkv = memory.numbers(
                                         shape.batch * shape.sequence * shape.qkv_width(), dtype),
                                     .table = memory.values(table),
                                     .shape = shape});
}

struct Attention {
  kernels::AttentionShape shape;
  kernels::DType dtype = kernels::DType::kF32;
  kernels::AttentionBy by = kernels::AttentionBy::kOwn;
};

kernels::Workspace workspace_of(Memory& memory, const Attention& a) {
  const kernels::Device device = memory.bench_device().device();
  if (a.by == kernels::AttentionBy::kOwn) {
    return memory.workspace(kernels::attention_workspace(a.shape, device.type));
  }
  const Result<size_t> bytes = kernels::dnn::prepare_attention(device, a.shape);
  if (bytes.ok()) return memory.workspace(*bytes);
  memory.note(bytes.error());
  return {};
}

kernels::AttentionForward attention(Memory& memory, const Attention& a) {
  const kernels::AttentionShape& s = a.shape;
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
  const kernels::AttentionForward forward = attention(memory, a);
  const int64_t rows = a.shape.batch * a.shape.sequence;
  const kernels::AttentionBackward backward{
      .dout = memory.numbers(rows * a.shape.width(), a.dtype),
      .qkv = forward.qkv,
      .out = forward.out,
      .lse = forward.lse,
      .dqkv = memory.numbers(rows * a.shape.qkv_width(), a.dtype),
      .shape = a.shape,
      .workspace = forward.workspace,
      .by = a.by};
  if (memory.status().ok())
    memory.bench_device().ops.attention_forward(memory.bench_device().stream, forward);
  return memory.call(&kernels::OpTable::attention_backward, backward);
}

}  // namespace

std::vector<Row> attention_rows(const kernels::AttentionShape& s, kernels::DType dtype,
                                kernels::AttentionBy by) {
  std::string sizes = "B=" + std::to_string(s.batch) + " T=" + std::to_string(s.sequence) +
                      " NH=" + std::to_string(s.heads) + " HD=" + std::to_string(s.head_dim);
  if (s.kv_heads != s.heads) sizes += " KVH=" + std::to_string(s.kv_heads);
  if (by == kernels::AttentionBy::kCudnn) sizes += " cuDNN";
  const Attention a{s, dtype, by};
  return {{.op = "attention_forward",
           .sizes = sizes,
           .prepare =
               [a](Memory& memory) {
                 return memory.call(&kernels::OpTable::attention_forward, attention(memory, a));
               }},
          {.op = "attention_backward", .sizes = sizes, .prepare = [a](Memory& memory) {
             return attention_backward(memory, a);
           }}};
}

void add_block_rows(const Model& m, std::vector<Row>& list) {
  const kernels::AttentionShape shape{.batch = m.batch,
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
