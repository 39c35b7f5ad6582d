#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/ops/attention.h"

// Causal attention as cuDNN is told of it: a graph of matrix products, pointwise operations and
// reductions, in which its fused kernels recognise "scaled dot-product attention" as a whole; none
// of the inner tensors is ever stored. Pure data. Source: cuDNN 9.19, developer guide, "Fused Flash
// Attention fprop" and "bprop" (equations and the operations in their order).
namespace lockstep::dnn {

// What a tensor is bound to when the graph runs; kInner: to nothing, it goes from one operation to
// others.
enum class Port : uint8_t {
  kInner,
  kQ,  // here and below: memory of the device
  kK,
  kV,
  kOut,
  kLse,
  kDout,
  kDq,
  kDk,
  kDv,
  kDelta,  // [B,NH,T,1] fp32: row sums of dout * out
  kScale,  // here and below: one fp32 of the host, read when the graph is issued
  kMasked,
  kOne,
};
inline constexpr int kPorts = static_cast<int>(Port::kOne) + 1;

constexpr bool is_host_value(Port port) {
  return port >= Port::kScale;
}

enum class ValueType : uint8_t { kF32, kBf16, kI32, kBool };

using Dims = std::array<int64_t, 4>;

struct Tensor {
  Port port = Port::kInner;
  ValueType type = ValueType::kF32;
  Dims dims = {};
  Dims strides = {};  // in elements
};

// y = operation(x, b, t), each computed in fp32 (kGreaterEqual: of integers), with dimensions of b
// that are 1 or divide x's repeated as matmul and pointwise operations of cuDNN do.
enum class Operation : uint8_t {
  kMatmul,  // of the last two dims; b's second dim may divide x's: grouped queries
  kMultiply,
  kAdd,
  kSubtract,
  kDivide,
  kExp,
  kLog,
  kRowIndex,     // the index of each element in x's third dim
  kColumnIndex,  // in its fourth
  kGreaterEqual,
  kSelect,   // t ? x : b
  kMaximum,  // over the dims in which y is smaller
  kSum,
  kReshape,  // the same memory under other dims and strides
};

// Tensors by their index in Graph::tensors; -1: none.
struct Node {
  Operation operation = Operation::kMatmul;
  int y = -1;
  int x = -1;
  int b = -1;
  int t = -1;
};

struct Graph {
  std::vector<Tensor> tensors;
  std::vector<Node> nodes;  // each after those whose results it reads
};

// Whether the graphs are for it: head_dim 64 or 128, and more than one token (cuDNN has no backward
// of one).
bool has_graph(const AttentionShape& shape);

// Tensors lie as kernels/ops/attention.h has them, in bf16. A graph that ends in Port::kLse and
// Port::kOut, and one that ends in kDq, kDk and kDv. With grouped queries the gradients of keys and
// values are made for each head of the queries, rounded to bf16 and then added up.
Graph forward_graph(const AttentionShape& shape);
Graph backward_graph(const AttentionShape& shape);

}  // namespace lockstep::dnn
