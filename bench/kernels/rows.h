#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/kernels/place.h"

namespace lockstep::bench {

// A line of the roofline: one call of one operation.
struct Row {
  std::string op;     // as OpTable calls it
  std::string sizes;  // "R=65536 C=768 residual"
  std::function<Call(Memory&)> prepare;
  // A matrix product that libraries also have by themselves.
  std::optional<MatmulShape> product = {};
  Precision precision = Precision::kF32;
};

// The sizes of a model whose layers and ends are timed, and what its tensors are.
struct Model {
  int64_t batch = 0;
  int64_t sequence = 0;
  int64_t width = 0;
  int64_t heads = 0;
  int64_t layers = 0;
  int64_t vocabulary = 0;
  int64_t columns = 0;        // of the logits: the vocabulary, filled up
  int64_t head_rows = 0;      // of a chunk of the head
  DType dtype = DType::kF32;  // of activations; parameters' gradients are always fp32
  // Of products. On the CPU, whose activations are fp32, weights are bf16 copies in kBf16.
  Precision precision = Precision::kF32;
};

// At least one row of every operation, with the sizes that the model has for it.
std::vector<Row> rows_of(const Model& model);
// Those of the matrix products alone.
std::vector<Row> matmul_rows(const Model& model);
// Forward and backward.
std::vector<Row> attention_rows(const AttentionShape& shape, DType dtype,
                                AttentionBy by = AttentionBy::kOwn);

}  // namespace lockstep::bench
