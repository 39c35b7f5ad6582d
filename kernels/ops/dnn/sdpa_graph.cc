#include "kernels/ops/dnn/sdpa_graph.h"

#include <utility>

namespace lockstep::kernels::dnn {

namespace {

constexpr int64_t kMinimumSequence = 2;

// Builds a graph for one shape, with the parts that both graphs share.
class Builder {
 public:
  explicit Builder(const AttentionShape& shape) : s_(shape) {}

  // Strides of tensors in packed qkv and in out.
  Dims packed_strides() const {
    return {s_.sequence * s_.qkv_width(), s_.head_dim, s_.qkv_width(), 1};
  }
  Dims out_strides() const { return {s_.sequence * s_.width(), s_.head_dim, s_.width(), 1}; }
  Dims query_dims() const { return {s_.batch, s_.heads, s_.sequence, s_.head_dim}; }
  Dims key_dims() const { return {s_.batch, s_.kv_heads, s_.sequence, s_.head_dim}; }
  Dims score_dims() const { return {s_.batch, s_.heads, s_.sequence, s_.sequence}; }
  Dims row_dims() const { return {s_.batch, s_.heads, s_.sequence, 1}; }

  int memory(Port port, ValueType type, const Dims& dims, const Dims& strides) {
    return add({.port = port, .type = type, .dims = dims, .strides = strides});
  }
  int rows(Port port) { return memory(port, ValueType::kF32, row_dims(), dense(row_dims())); }
  int queries(Port port) { return memory(port, ValueType::kBf16, query_dims(), packed_strides()); }
  int keys(Port port) { return memory(port, ValueType::kBf16, key_dims(), packed_strides()); }
  int outputs(Port port) { return memory(port, ValueType::kBf16, query_dims(), out_strides()); }
  // Returns keys or values transposed: the second factor of a product of rows with rows.
  int transposed_keys(Port port) {
    return memory(port, ValueType::kBf16, transposed(key_dims()), transposed(packed_strides()));
  }
  int host_value(Port port) { return memory(port, ValueType::kF32, {1, 1, 1, 1}, {1, 1, 1, 1}); }
  int inner(const Dims& dims, ValueType type = ValueType::kF32) {
    return add({.type = type, .dims = dims, .strides = dense(dims)});
  }

  // Appends a node and returns its y.
  int node(const Node& node) {
    graph_.nodes.push_back(node);
    return node.y;
  }
  // y has x's dims.
  int pointwise(Operation operation, int x, int b = -1) {
    return node({.operation = operation, .y = inner(dims_of(x)), .x = x, .b = b});
  }

  // Replaces scores[query, key] by the masked value if the key comes after the query.
  int masked(int scores) {
    const int row = node({.operation = Operation::kRowIndex,
                          .y = inner(score_dims(), ValueType::kI32),
                          .x = scores});
    const int column = node({.operation = Operation::kColumnIndex,
                             .y = inner(score_dims(), ValueType::kI32),
                             .x = scores});
    const int seen = node({.operation = Operation::kGreaterEqual,
                           .y = inner(score_dims(), ValueType::kBool),
                           .x = row,
                           .b = column});
    return node({.operation = Operation::kSelect,
                 .y = inner(score_dims()),
                 .x = scores,
                 .b = host_value(Port::kMasked),
                 .t = seen});
  }

  // Returns the transpose of scores in bf16, as a view of the same memory.
  int transposed_scores(int scores) {
    const Dims strides = transposed(dense(score_dims()));
    const int y = add({.type = ValueType::kBf16, .dims = score_dims(), .strides = strides});
    return node({.operation = Operation::kReshape, .y = y, .x = scores});
  }

  // Adds the gradient of keys or values: weights[key, query] * rows[query, column], summed over the
  // query heads that share a key head.
  void key_gradient(int weights, int rows, Port port) {
    const int gradient = keys(port);
    if (s_.heads == s_.kv_heads) {
      node({.operation = Operation::kMatmul, .y = gradient, .x = weights, .b = rows});
      return;
    }
    const int of_heads = inner(query_dims(), ValueType::kBf16);
    node({.operation = Operation::kMatmul, .y = of_heads, .x = weights, .b = rows});
    node({.operation = Operation::kSum, .y = gradient, .x = of_heads});
  }

  Graph take() { return std::move(graph_); }

  static Dims transposed(const Dims& d) { return {d[0], d[1], d[3], d[2]}; }

 private:
  static Dims dense(const Dims& d) { return {d[1] * d[2] * d[3], d[2] * d[3], d[3], 1}; }
  const Dims& dims_of(int tensor) const { return graph_.tensors[static_cast<size_t>(tensor)].dims; }
  int add(const Tensor& tensor) {
    graph_.tensors.push_back(tensor);
    return static_cast<int>(graph_.tensors.size()) - 1;
  }

  AttentionShape s_;
  Graph graph_;
};

}  // namespace

bool has_graph(const AttentionShape& shape) {
  return shape.causal && (shape.head_dim == 64 || shape.head_dim == 128) &&
         shape.sequence >= kMinimumSequence && shape.batch > 0 && shape.kv_heads > 0 &&
         shape.heads % shape.kv_heads == 0 && shape.heads > 0;
}

Graph forward_graph(const AttentionShape& shape) {
  Builder g(shape);
  const int scores = g.node({.operation = Operation::kMatmul,
                             .y = g.inner(g.score_dims()),
                             .x = g.queries(Port::kQ),
                             .b = g.transposed_keys(Port::kK)});
  const int scaled = g.pointwise(Operation::kMultiply, scores, g.host_value(Port::kScale));
  const int seen = g.masked(scaled);
  const int highest =
      g.node({.operation = Operation::kMaximum, .y = g.inner(g.row_dims()), .x = seen});
  const int shifted = g.pointwise(Operation::kSubtract, seen, highest);
  const int powers = g.pointwise(Operation::kExp, shifted);
  const int sum = g.node({.operation = Operation::kSum, .y = g.inner(g.row_dims()), .x = powers});
  const int logarithm = g.pointwise(Operation::kLog, sum);
  g.node({.operation = Operation::kAdd, .y = g.rows(Port::kLse), .x = highest, .b = logarithm});
  const int weights = g.node({.operation = Operation::kDivide,
                              .y = g.inner(g.score_dims(), ValueType::kBf16),
                              .x = powers,
                              .b = sum});
  g.node({.operation = Operation::kMatmul,
          .y = g.outputs(Port::kOut),
          .x = weights,
          .b = g.keys(Port::kV)});
  return g.take();
}

Graph backward_graph(const AttentionShape& shape) {
  Builder g(shape);
  const int q = g.queries(Port::kQ), k = g.transposed_keys(Port::kK),
            v = g.transposed_keys(Port::kV);
  const int dout = g.outputs(Port::kDout);
  const int scale = g.host_value(Port::kScale);

  const int products = g.pointwise(Operation::kMultiply, dout, g.outputs(Port::kOut));
  const int sums =
      g.node({.operation = Operation::kSum, .y = g.inner(g.row_dims()), .x = products});
  const int delta = g.node({.operation = Operation::kMultiply,
                            .y = g.rows(Port::kDelta),
                            .x = sums,
                            .b = g.host_value(Port::kOne)});

  const int scores =
      g.node({.operation = Operation::kMatmul, .y = g.inner(g.score_dims()), .x = q, .b = k});
  const int scaled = g.pointwise(Operation::kMultiply, scores, scale);
  const int shifted = g.pointwise(Operation::kSubtract, scaled, g.rows(Port::kLse));
  const int weights = g.pointwise(Operation::kExp, g.masked(shifted));
  g.key_gradient(g.transposed_scores(weights), dout, Port::kDv);

  const int dweights =
      g.node({.operation = Operation::kMatmul, .y = g.inner(g.score_dims()), .x = dout, .b = v});
  const int centred = g.pointwise(Operation::kSubtract, dweights, delta);
  const int weighted = g.pointwise(Operation::kMultiply, centred, weights);
  const int dscores = g.pointwise(Operation::kMultiply, weighted, scale);
  g.key_gradient(g.transposed_scores(dscores), q, Port::kDk);

  // k by rows again, as fp32 like the other factor.
  const int rows_of_k = g.memory(Port::kInner, ValueType::kF32, g.key_dims(), g.packed_strides());
  g.node({.operation = Operation::kReshape, .y = rows_of_k, .x = k});
  // Writes dq directly. With fp32 sums to which many blocks add in any order, the same call would
  // not always give the same bits.
  g.node(
      {.operation = Operation::kMatmul, .y = g.queries(Port::kDq), .x = dscores, .b = rows_of_k});
  return g.take();
}

}  // namespace lockstep::kernels::dnn
