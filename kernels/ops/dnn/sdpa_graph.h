#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/ops/attention.h"

// Causal attention as we describe it to cuDNN: a graph of matrix products, pointwise operations and
// reductions. cuDNN's fused kernels recognize the whole graph as "scaled dot-product attention" and
// never store the inner tensors. Pure data. Source: cuDNN 9.19, developer guide, "Fused Flash
// Attention fprop" and "bprop" (equations and the order of operations).
namespace lockstep::kernels::dnn {

// The memory a tensor is bound to when the graph runs. kInner: none; it passes from one operation
// to others.
enum class Port : uint8_t {
  kInner,
  kQ,  // from here on: device memory
  kK,
  kV,
  kOut,
  kLse,
  kDout,
  kDq,
  kDk,
  kDv,
  kDelta,  // [B,NH,T,1] fp32: row sums of dout * out
  kScale,  // from here on: one fp32 in host memory, read when the graph is issued
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

// y = operation(x, b, t), computed in fp32 (kGreaterEqual: on integers). Dimensions of b that are 1
// or divide x's are broadcast, by the rules of cuDNN's matmul and pointwise operations.
enum class Operation : uint8_t {
  kMatmul,  // over the last two dims; b's second dim may divide x's, for grouped queries
  kMultiply,
  kAdd,
  kSubtract,
  kDivide,
  kExp,
  kLog,
  kRowIndex,     // each element's index in x's third dim
  kColumnIndex,  // each element's index in x's fourth dim
  kGreaterEqual,
  kSelect,   // t ? x : b
  kMaximum,  // over the dims where y is smaller than x
  kSum,
  kReshape,  // the same memory with other dims and strides
};

// Refers to tensors by index in Graph::tensors; -1: none.
struct Node {
  Operation operation = Operation::kMatmul;
  int y = -1;
  int x = -1;
  int b = -1;
  int t = -1;
};

struct Graph {
  std::vector<Tensor> tensors;
  std::vector<Node> nodes;  // each node after the nodes whose results it reads
};

// Returns whether the graphs support the shape: head_dim 64 or 128, and more than one token (cuDNN
// has no backward for one).
bool has_graph(const AttentionShape& shape);

// Tensors have the layout of kernels/ops/attention.h, in bf16. The forward graph outputs Port::kOut
// and Port::kLse, the backward graph kDq, kDk and kDv. With grouped queries, key and value
// gradients are computed per query head, rounded to bf16 and then added up.
Graph forward_graph(const AttentionShape& shape);
Graph backward_graph(const AttentionShape& shape);

}  // namespace lockstep::kernels::dnn
