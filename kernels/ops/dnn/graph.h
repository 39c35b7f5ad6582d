#pragma once

#include <array>
#include <cstdint>
#include <vector>

// The operation graphs that we describe to cuDNN. Pure data.
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
  kDelta,   // [B,NH,T,1] fp32: row sums of dout * out
  kImages,  // of a convolution; this and the next two are gradients where a pass computes those
  kFilters,
  kPixels,  // images that the convolution writes
  kScale,   // from here on: one fp32 in host memory, read when the graph is issued
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
  // Convolutions of images [N,C,H,W] by filters [K,C/G,R,S] to images [N,K,P,Q] (Node::window):
  kConvolution,         // y = images x, filters b
  kConvolutionInputs,   // y = the gradient of images, from that of the result x, and filters b
  kConvolutionFilters,  // y = the gradient of filters, from that of the result x, and images b
};

// How the filters of a convolution move over the images, the same in both directions.
struct Window {
  int64_t stride = 1;
  int64_t padding = 0;  // pixels of zeros on each side
  bool adds = false;    // y += the result
};

// Refers to tensors by index in Graph::tensors; -1: none.
struct Node {
  Operation operation = Operation::kMatmul;
  int y = -1;
  int x = -1;
  int b = -1;
  int t = -1;
  Window window = {};  // of a convolution
};

struct Graph {
  std::vector<Tensor> tensors;
  std::vector<Node> nodes;  // each node after the nodes whose results it reads
};

}  // namespace lockstep::kernels::dnn
