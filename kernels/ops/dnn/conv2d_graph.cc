#include "kernels/ops/dnn/conv2d_graph.h"

namespace lockstep::kernels::dnn {

namespace {

// Channels are the innermost dim in memory.
Tensor channels_last(Port port, DType dtype, const Dims& d) {
  return {.port = port,
          .type = dtype == DType::kF32 ? ValueType::kF32 : ValueType::kBf16,
          .dims = d,
          .strides = {d[1] * d[2] * d[3], 1, d[3] * d[1], d[1]}};
}

}  // namespace

Graph conv2d_graph(const Conv2dShape& s, DType dtype, Conv2dPass pass, bool adds) {
  enum { kX, kWeight, kY };
  Graph graph;
  graph.tensors = {
      channels_last(Port::kImages, dtype, {s.batch, s.channels, s.height, s.width}),
      channels_last(Port::kFilters, dtype,
                    {s.filters, s.channels / s.groups, s.filter_height, s.filter_width}),
      channels_last(Port::kPixels, dtype, {s.batch, s.filters, s.out_height(), s.out_width()})};
  Node node{.window = {.stride = s.stride, .padding = s.padding, .adds = adds}};
  switch (pass) {
    case Conv2dPass::kForward:
      node.operation = Operation::kConvolution;
      node.y = kY, node.x = kX, node.b = kWeight;
      break;
    case Conv2dPass::kInputs:
      node.operation = Operation::kConvolutionInputs;
      node.y = kX, node.x = kY, node.b = kWeight;
      break;
    case Conv2dPass::kFilters:
      node.operation = Operation::kConvolutionFilters;
      node.y = kWeight, node.x = kY, node.b = kX;
      break;
  }
  graph.nodes = {node};
  return graph;
}

}  // namespace lockstep::kernels::dnn
