#include "kernels/ops/dnn/cudnn_descriptors.h"

#include <array>
#include <string>

#include "kernels/device/device_errors.h"

namespace lockstep::kernels::dnn {

namespace {

cudnnDataType_t type_of(ValueType type) {
  switch (type) {
    case ValueType::kF32:
      return CUDNN_DATA_FLOAT;
    case ValueType::kBf16:
      return CUDNN_DATA_BFLOAT16;
    case ValueType::kI32:
      return CUDNN_DATA_INT32;
    case ValueType::kBool:
      return CUDNN_DATA_BOOLEAN;
  }
  return CUDNN_DATA_FLOAT;
}

cudnnPointwiseMode_t mode_of(Operation operation) {
  switch (operation) {
    case Operation::kMultiply:
      return CUDNN_POINTWISE_MUL;
    case Operation::kAdd:
      return CUDNN_POINTWISE_ADD;
    case Operation::kSubtract:
      return CUDNN_POINTWISE_SUB;
    case Operation::kDivide:
      return CUDNN_POINTWISE_DIV;
    case Operation::kExp:
      return CUDNN_POINTWISE_EXP;
    case Operation::kLog:
      return CUDNN_POINTWISE_LOG;
    case Operation::kRowIndex:
    case Operation::kColumnIndex:
      return CUDNN_POINTWISE_GEN_INDEX;
    case Operation::kGreaterEqual:
      return CUDNN_POINTWISE_CMP_GE;
    default:
      return CUDNN_POINTWISE_BINARY_SELECT;
  }
}

// The attributes of a convolution's operation; y is written.
struct ConvolutionAttributes {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t settings, y, x, b, alpha, beta;
};

ConvolutionAttributes attributes_of(Operation operation) {
  switch (operation) {
    case Operation::kConvolutionInputs:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case Operation::kConvolutionFilters:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    default:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
  }
}

// A tensor of a node, and the attribute to which it is assigned.
struct Operand {
  cudnnBackendAttributeName_t attribute;
  int tensor;
};

// Builds the descriptors of one graph; keeps its parts in the order of creation.
class Describer {
 public:
  Describer(const CudnnCalls& calls, DescribedGraph& result) : calls_(calls), result_(result) {}

  Status tensor(const Tensor& tensor, int64_t id) {
    TRY_ASSIGN(Descriptor made, calls_.make(CUDNN_BACKEND_TENSOR_DESCRIPTOR));
    TRY(calls_.set(made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type_of(tensor.type)));
    TRY(calls_.set(made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64,
                   std::span<const int64_t>(tensor.dims)));
    TRY(calls_.set(made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64,
                   std::span<const int64_t>(tensor.strides)));
    TRY(calls_.set(made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id));
    TRY(calls_.set(made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, kTensorAlignment));
    TRY(calls_.set(made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN,
                   tensor.port == Port::kInner));
    TRY(calls_.set(made, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN,
                   is_host_value(tensor.port)));
    return keep(std::move(made));
  }

  Status node(const Node& node) {
    switch (node.operation) {
      case Operation::kMatmul:
        return matmul(node);
      case Operation::kMaximum:
        return reduction(node, CUDNN_REDUCE_TENSOR_MAX);
      case Operation::kSum:
        return reduction(node, CUDNN_REDUCE_TENSOR_ADD);
      case Operation::kReshape:
        return reshape(node);
      case Operation::kConvolution:
      case Operation::kConvolutionInputs:
      case Operation::kConvolutionFilters:
        return convolution(node);
      default:
        return pointwise(node);
    }
  }

  Status graph(cudnnHandle_t handle) {
    TRY_ASSIGN(result_.graph, calls_.make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
    std::vector<cudnnBackendDescriptor_t> operations;
    for (const Descriptor& operation : result_.operations) operations.push_back(operation.get());
    TRY(calls_.set(result_.graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                   std::span<const cudnnBackendDescriptor_t>(operations)));
    TRY(calls_.set(result_.graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle));
    return calls_.finalize(result_.graph);
  }

 private:
  // Finalizes a part and keeps it.
  Status keep(Descriptor made) {
    TRY(calls_.finalize(made));
    result_.parts.push_back(std::move(made));
    return {};
  }

  struct Settings {
    cudnnBackendAttributeName_t attribute = {};
    const Descriptor* descriptor = nullptr;  // null if the operation has none
  };
  // y = alpha * result + beta * y
  struct Factor {
    cudnnBackendAttributeName_t attribute = {};
    double value = 1;
  };
  Status operation(cudnnBackendDescriptorType_t type, const Settings& settings,
                   std::span<const Operand> operands, std::span<const Factor> factors = {}) {
    TRY_ASSIGN(Descriptor made, calls_.make(type));
    if (settings.descriptor != nullptr) TRY(refer(made, settings.attribute, *settings.descriptor));
    for (const Operand& operand : operands) {
      if (operand.tensor < 0) continue;
      TRY(refer(made, operand.attribute, result_.parts[static_cast<size_t>(operand.tensor)]));
    }
    for (const Factor& factor : factors) {
      TRY(calls_.set(made, factor.attribute, CUDNN_TYPE_DOUBLE, factor.value));
    }
    TRY(calls_.finalize(made));
    result_.operations.push_back(std::move(made));
    return {};
  }
  Status refer(const Descriptor& from, cudnnBackendAttributeName_t attribute,
               const Descriptor& to) {
    return calls_.set(from, attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, to.get());
  }

  Status matmul(const Node& node) {
    TRY_ASSIGN(Descriptor made, calls_.make(CUDNN_BACKEND_MATMUL_DESCRIPTOR));
    TRY(calls_.set(made, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT));
    TRY(keep(std::move(made)));
    const std::array<Operand, 3> operands = {{{CUDNN_ATTR_OPERATION_MATMUL_ADESC, node.x},
                                              {CUDNN_ATTR_OPERATION_MATMUL_BDESC, node.b},
                                              {CUDNN_ATTR_OPERATION_MATMUL_CDESC, node.y}}};
    return operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
                     {CUDNN_ATTR_OPERATION_MATMUL_DESC, &result_.parts.back()}, operands);
  }

  Status reduction(const Node& node, cudnnReduceTensorOp_t reduce) {
    TRY_ASSIGN(Descriptor made, calls_.make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR));
    TRY(calls_.set(made, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE,
                   reduce));
    TRY(calls_.set(made, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT));
    TRY(keep(std::move(made)));
    const std::array<Operand, 2> operands = {{{CUDNN_ATTR_OPERATION_REDUCTION_XDESC, node.x},
                                              {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, node.y}}};
    return operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
                     {CUDNN_ATTR_OPERATION_REDUCTION_DESC, &result_.parts.back()}, operands);
  }

  Status reshape(const Node& node) {
    const std::array<Operand, 2> operands = {{{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, node.x},
                                              {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, node.y}}};
    return operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, {}, operands);
  }

  Status convolution(const Node& node) {
    TRY_ASSIGN(Descriptor made, calls_.make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR));
    TRY(calls_.set(made, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT));
    TRY(calls_.set(made, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
                   CUDNN_CROSS_CORRELATION));
    const auto set_both = [&](cudnnBackendAttributeName_t attribute, int64_t value) {
      const std::array<int64_t, 2> values = {value, value};
      return calls_.set(made, attribute, CUDNN_TYPE_INT64, std::span<const int64_t>(values));
    };
    TRY(calls_.set(made, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, int64_t{2}));
    TRY(set_both(CUDNN_ATTR_CONVOLUTION_DILATIONS, 1));
    TRY(set_both(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, node.window.stride));
    TRY(set_both(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, node.window.padding));
    TRY(set_both(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, node.window.padding));
    TRY(keep(std::move(made)));
    const ConvolutionAttributes at = attributes_of(node.operation);
    const std::array<Operand, 3> operands = {{{at.x, node.x}, {at.b, node.b}, {at.y, node.y}}};
    const std::array<Factor, 2> factors = {
        {{at.alpha, 1.0}, {at.beta, node.window.adds ? 1.0 : 0.0}}};
    return operation(at.operation, {at.settings, &result_.parts.back()}, operands, factors);
  }

  Status pointwise(const Node& node) {
    TRY_ASSIGN(Descriptor made, calls_.make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR));
    const bool compares = node.operation == Operation::kGreaterEqual;
    TRY(calls_.set(made, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE,
                   mode_of(node.operation)));
    TRY(calls_.set(made, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
                   compares ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT));
    if (node.operation == Operation::kRowIndex || node.operation == Operation::kColumnIndex) {
      const int64_t axis = node.operation == Operation::kRowIndex ? 2 : 3;
      TRY(calls_.set(made, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis));
    }
    TRY(keep(std::move(made)));
    const std::array<Operand, 4> operands = {{{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, node.x},
                                              {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, node.b},
                                              {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, node.t},
                                              {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, node.y}}};
    return operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
                     {CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &result_.parts.back()},
                     operands);
  }

  const CudnnCalls& calls_;
  DescribedGraph& result_;
};

}  // namespace

// The library keeps the text of the thread's last errors until it is read.
Error CudnnCalls::error(const char* call, cudnnStatus_t status,
                        const std::source_location& where) const {
  std::array<char, 512> last = {};
  library_.last_error_string(last.data(), last.size() - 1);
  std::string words = library_.error_string(status);
  if (last[0] != '\0') words += std::string(": ") + last.data();
  return call_error(
      {call, where.file_name(), static_cast<int>(where.line()), {DeviceType::kCuda, index_}},
      words);
}

Status CudnnCalls::check(const char* call, cudnnStatus_t status,
                         const std::source_location& where) const {
  if (status == CUDNN_STATUS_SUCCESS) return {};
  return error(call, status, where);
}

Result<Descriptor> CudnnCalls::make(cudnnBackendDescriptorType_t type,
                                    const std::source_location& where) const {
  cudnnBackendDescriptor_t made = nullptr;
  TRY(check("cudnnBackendCreateDescriptor", library_.create_descriptor(type, &made), where));
  return Descriptor(made, {library_.destroy_descriptor});
}

Status CudnnCalls::finalize(const Descriptor& descriptor, const std::source_location& where) const {
  return check("cudnnBackendFinalize", library_.finalize(descriptor.get()), where);
}

Result<DescribedGraph> describe(const CudnnCalls& calls, cudnnHandle_t handle, const Graph& graph) {
  DescribedGraph result;
  Describer describer(calls, result);
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    TRY(describer.tensor(graph.tensors[i], unique_id(i)));
  }
  for (const Node& node : graph.nodes) TRY(describer.node(node));
  TRY(describer.graph(handle));
  return result;
}

}  // namespace lockstep::kernels::dnn
