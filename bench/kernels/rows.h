#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/kernels/bench_device.h"

namespace lockstep::bench {

// A row of the roofline: one call of one op.
struct Row {
  std::string op;     // the name in OpTable
  std::string sizes;  // "R=65536 C=768 residual"
  std::function<Call(Memory&)> prepare;
  // Set for a matrix product that libraries offer as well.
  std::optional<kernels::MatmulShape> product = {};
  kernels::Precision precision = kernels::Precision::kF32;
};

// The sizes and dtypes of a model whose ops are timed.
struct Model {
  int64_t batch = 0;
  int64_t sequence = 0;
  int64_t width = 0;
  int64_t heads = 0;
  int64_t layers = 0;
  int64_t vocabulary = 0;
  int64_t columns = 0;    // of the logits: the vocabulary, padded
  int64_t head_rows = 0;  // rows in a chunk of the head
  kernels::DType dtype =
      kernels::DType::kF32;  // of activations; parameter gradients are always fp32
  // Precision of products. On the CPU activations are fp32, and with kBf16 weights are bf16 copies.
  kernels::Precision precision = kernels::Precision::kF32;
};

// Returns at least one row for every op, with the model's sizes.
std::vector<Row> rows_of(const Model& model);
// Returns only the rows of matrix products.
std::vector<Row> matmul_rows(const Model& model);
// Returns a forward and a backward row.
std::vector<Row> attention_rows(const kernels::AttentionShape& shape, kernels::DType dtype,
                                kernels::AttentionBy by = kernels::AttentionBy::kOwn);
// Returns the rows of convolutions once more, by cuDNN. kUnavailable, with the reason, if cuDNN
// does not compute all passes on the device.
Result<std::vector<Row>> cudnn_conv_rows(const Model& model, kernels::Device device);

}  // namespace lockstep::bench
