#pragma once

#include "kernels/ops/attention.h"
#include "kernels/ops/dnn/graph.h"

// Causal attention as we describe it to cuDNN: a graph of matrix products, pointwise operations and
// reductions. cuDNN's fused kernels recognize the whole graph as "scaled dot-product attention" and
// never store the inner tensors. Pure data. Source: cuDNN 9.19, developer guide, "Fused Flash
// Attention fprop" and "bprop" (equations and the order of operations).
namespace lockstep::kernels::dnn {

// Returns whether the graphs support the shape: head_dim 64 or 128, and more than one token (cuDNN
// has no backward for one).
bool has_graph(const AttentionShape& shape);

// Tensors have the layout of kernels/ops/attention.h, in bf16. The forward graph outputs Port::kOut
// and Port::kLse, the backward graph kDq, kDk and kDv. With grouped queries, key and value
// gradients are computed per query head, rounded to bf16 and then added up.
Graph forward_graph(const AttentionShape& shape);
Graph backward_graph(const AttentionShape& shape);

}  // namespace lockstep::kernels::dnn
