// Rows for the optimizer's ops and the elementwise ops.
#include <numeric>

#include "bench/kernels/rows_parts.h"

namespace lockstep::bench {

namespace {

// Returns the parameters of a GPT-2: each layer's matrices and vectors, then both embeddings and
// the last norm.
std::vector<int64_t> parameter_counts(const Model& m) {
  const int64_t c = m.width;
  std::vector<int64_t> counts;
  for (int64_t layer = 0; layer < m.layers; ++layer) {
    for (const int64_t count :
         {c, c, 3 * c * c, 3 * c, c * c, c, c, c, 4 * c * c, 4 * c, 4 * c * c, c}) {
      counts.push_back(count);
    }
  }
  for (const int64_t count : {m.columns * c, m.sequence * c, c, c}) counts.push_back(count);
  return counts;
}

std::string sizes_of(const std::vector<int64_t>& counts) {
  return "n=" + std::to_string(std::accumulate(counts.begin(), counts.end(), int64_t{0})) + " of " +
         std::to_string(counts.size()) + " tensors";
}

// Matrices have a bf16 copy if products read bf16.
const std::vector<kernels::UpdatedTensor>& updated_tensors(Memory& memory, const Model& m,
                                                           int states) {
  const bool copies = m.precision == kernels::Precision::kBf16 || m.dtype == kernels::DType::kBf16;
  std::vector<kernels::UpdatedTensor>& tensors = memory.updated.emplace_back();
  constexpr Range kSquares{0.0f, 1.0f};
  for (const int64_t count : parameter_counts(m)) {
    const bool is_matrix = count >= m.width * m.width;
    tensors.push_back({.parameter = memory.floats(count),
                       .gradient = memory.floats(count),
                       .copy = copies && is_matrix ? memory.numbers(count, kernels::DType::kBf16)
                                                   : kernels::View(),
                       .count = count,
                       .weight_decay = 0.1f});
    for (int k = 0; k < states; ++k) tensors.back().states[k] = memory.floats(count, kSquares);
  }
  return tensors;
}

Call adamw(Memory& memory, const Model& m) {
  return memory.call(&kernels::OpTable::adamw,
                     kernels::AdamW{.tensors = updated_tensors(memory, m, 2),
                                    .learning_rate = 1e-5f,
                                    .device_scale = memory.values({0.5f})});
}

Call sgd(Memory& memory, const Model& m) {
  return memory.call(&kernels::OpTable::sgd, kernels::Sgd{.tensors = updated_tensors(memory, m, 1),
                                                          .learning_rate = 1e-5f,
                                                          .momentum = 0.9f,
                                                          .device_scale = memory.values({0.5f})});
}

Call adagrad(Memory& memory, const Model& m) {
  return memory.call(&kernels::OpTable::adagrad,
                     kernels::Adagrad{.tensors = updated_tensors(memory, m, 1),
                                      .learning_rate = 1e-5f,
                                      .device_scale = memory.values({0.5f})});
}

Call ftrl(Memory& memory, const Model& m) {
  return memory.call(&kernels::OpTable::ftrl,
                     kernels::Ftrl{.tensors = updated_tensors(memory, m, 2),
                                   .learning_rate = 1e-5f,
                                   .l1 = 1e-3f,
                                   .device_scale = memory.values({0.5f})});
}

kernels::SquareSum* square_sum(Memory& memory) {
  const std::vector<double> zeroes(kernels::kSquareWords);
  return reinterpret_cast<kernels::SquareSum*>(memory.doubles(zeroes));
}

Call squared_norm(Memory& memory, const Model& m) {
  std::vector<kernels::FlatTensor>& tensors = memory.flat.emplace_back();
  for (const int64_t count : parameter_counts(m)) {
    tensors.push_back({.data = memory.floats(count), .count = count});
  }
  return memory.call(&kernels::OpTable::squared_norm,
                     kernels::SquaredNorm{.tensors = tensors, .sum = square_sum(memory)});
}

Call clip_scale(Memory& memory) {
  return memory.call(&kernels::OpTable::clip_scale,
                     kernels::ClipScale{.squares = square_sum(memory),
                                        .scale = memory.values({0.0f}),
                                        .norm = memory.values({0.0f}),
                                        .clip_norm = 1.0});
}

Call inverse_norm(Memory& memory) {
  return memory.call(
      &kernels::OpTable::inverse_norm,
      kernels::InverseNorm{
          .squares = square_sum(memory), .factor = memory.values({0.0f}), .epsilon = 1e-7});
}

// One of two shards of the columns of an MLP's second matrix.
Call copy_rows(Memory& memory, const Model& m) {
  const int64_t columns = 4 * m.width;
  const auto floats = [&](int64_t count) {
    return memory.numbers(count, kernels::DType::kF32).f32();
  };
  return memory.call(&kernels::OpTable::copy_rows,
                     kernels::CopyRows{.from = floats(m.width * columns),
                                       .to = floats(m.width * columns / 2),
                                       .rows = m.width,
                                       .width = columns / 2,
                                       .from_stride = columns,
                                       .to_stride = columns / 2});
}

void add_elementwise(const Model& m, std::vector<Row>& list) {
  const int64_t count = m.batch * m.sequence * m.width;
  const kernels::DType dtype = m.dtype;
  const std::string sizes = "n=" + std::to_string(count);
  list.push_back(
      {.op = "fill", .sizes = sizes, .prepare = [=](Memory& memory) {
         return memory.call(
             &kernels::OpTable::fill,
             kernels::Fill{.out = memory.numbers(count, dtype), .count = count, .value = 1.0f});
       }});
  list.push_back({.op = "cast", .sizes = sizes + " fp32 to bf16", .prepare = [=](Memory& memory) {
                    return memory.call(
                        &kernels::OpTable::cast,
                        kernels::Cast{.x = memory.numbers(count, kernels::DType::kF32),
                                      .out = memory.numbers(count, kernels::DType::kBf16),
                                      .count = count});
                  }});
  list.push_back({.op = "scale", .sizes = sizes, .prepare = [=](Memory& memory) {
                    return memory.call(&kernels::OpTable::scale,
                                       kernels::Scale{.x = memory.numbers(count, dtype),
                                                      .out = memory.numbers(count, dtype),
                                                      .count = count,
                                                      .factor = 0.5f});
                  }});
  list.push_back({.op = "dropout", .sizes = sizes, .prepare = [=](Memory& memory) {
                    return memory.call(&kernels::OpTable::dropout,
                                       kernels::Dropout{.x = memory.numbers(count, dtype),
                                                        .out = memory.numbers(count, dtype),
                                                        .count = count,
                                                        .probability = 0.1,
                                                        .key = kernels::dropout_key(1, 0)});
                  }});
  list.push_back({.op = "add", .sizes = sizes, .prepare = [=](Memory& memory) {
                    return memory.call(&kernels::OpTable::add,
                                       kernels::Add{.a = memory.numbers(count, dtype),
                                                    .b = memory.numbers(count, dtype),
                                                    .out = memory.numbers(count, dtype),
                                                    .count = count});
                  }});
}

}  // namespace

void add_update_rows(const Model& m, std::vector<Row>& list) {
  const std::string sizes = sizes_of(parameter_counts(m));
  list.push_back(
      {.op = "adamw", .sizes = sizes, .prepare = [m](Memory& memory) { return adamw(memory, m); }});
  list.push_back(
      {.op = "sgd", .sizes = sizes, .prepare = [m](Memory& memory) { return sgd(memory, m); }});
  list.push_back({.op = "adagrad", .sizes = sizes, .prepare = [m](Memory& memory) {
                    return adagrad(memory, m);
                  }});
  list.push_back(
      {.op = "ftrl", .sizes = sizes, .prepare = [m](Memory& memory) { return ftrl(memory, m); }});
  list.push_back({.op = "squared_norm", .sizes = sizes, .prepare = [m](Memory& memory) {
                    return squared_norm(memory, m);
                  }});
  list.push_back({.op = "clip_scale", .sizes = "n=1", .prepare = clip_scale});
  list.push_back({.op = "inverse_norm", .sizes = "n=1", .prepare = inverse_norm});
  list.push_back({.op = "copy_rows",
                  .sizes = std::to_string(m.width) + " x " + std::to_string(2 * m.width),
                  .prepare = [m](Memory& memory) { return copy_rows(memory, m); }});
  add_elementwise(m, list);
}

std::vector<Row> rows_of(const Model& model) {
  std::vector<Row> list = matmul_rows(model);
  add_block_rows(model, list);
  add_embedding_loss_rows(model, list);
  add_conv_rows(model, list);
  add_update_rows(model, list);
  return list;
}

}  // namespace lockstep::bench
