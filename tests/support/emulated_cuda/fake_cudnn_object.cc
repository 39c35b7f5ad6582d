#include "tests/support/emulated_cuda/fake_cudnn_object.h"

#include <algorithm>
#include <array>
#include <set>

namespace lockstep::test {

namespace {

constexpr int64_t kDims = 4;

// The attributes of the three operations of a convolution; `y` is written.
struct ConvolutionNames {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t settings, images, filters, pixels, y, alpha, beta;
};
constexpr std::array<ConvolutionNames, 3> kConvolutions = {
    {{CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
     {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
     {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}}};

// Returns null for other operations.
const ConvolutionNames* names_of(cudnnBackendDescriptorType_t operation) {
  const auto at = std::ranges::find(kConvolutions, operation, &ConvolutionNames::operation);
  return at == kConvolutions.end() ? nullptr : &*at;
}

void add_convolutions(std::vector<FakeRule>& rules) {
  const auto settings = CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR;
  rules.push_back({settings, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE});
  rules.push_back({settings, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE});
  rules.push_back({settings, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64});
  for (const auto attribute :
       {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES,
        CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS}) {
    rules.push_back({settings, attribute, CUDNN_TYPE_INT64, 2});
  }
  for (const ConvolutionNames& names : kConvolutions) {
    for (const auto part : {names.settings, names.images, names.filters, names.pixels}) {
      rules.push_back({names.operation, part, CUDNN_TYPE_BACKEND_DESCRIPTOR});
    }
    for (const auto factor : {names.alpha, names.beta}) {
      rules.push_back({names.operation, factor, CUDNN_TYPE_DOUBLE});
    }
  }
}

std::vector<FakeRule> make_rules() {
  std::vector<FakeRule> all = {
      {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE},
      {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, kDims},
      {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, kDims},
      {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64},
      {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64},
      {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, false},
      {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1,
       false},
      {CUDNN_BACKEND_MATMUL_DESCRIPTOR, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE},
      {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_ADESC,
       CUDNN_TYPE_BACKEND_DESCRIPTOR},
      {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_BDESC,
       CUDNN_TYPE_BACKEND_DESCRIPTOR},
      {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_CDESC,
       CUDNN_TYPE_BACKEND_DESCRIPTOR},
      {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_DESC,
       CUDNN_TYPE_BACKEND_DESCRIPTOR},
      {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE},
      {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE},
      {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, false},
      {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
       CUDNN_TYPE_BACKEND_DESCRIPTOR},
      {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
       CUDNN_TYPE_BACKEND_DESCRIPTOR},
      {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, false},
      {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, false},
      {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
       CUDNN_TYPE_BACKEND_DESCRIPTOR},
      {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_OPERATOR,
       CUDNN_TYPE_REDUCTION_OPERATOR_TYPE},
      {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE},
      {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_XDESC,
       CUDNN_TYPE_BACKEND_DESCRIPTOR},
      {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_YDESC,
       CUDNN_TYPE_BACKEND_DESCRIPTOR},
      {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_DESC,
       CUDNN_TYPE_BACKEND_DESCRIPTOR},
      {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, CUDNN_ATTR_OPERATION_RESHAPE_XDESC,
       CUDNN_TYPE_BACKEND_DESCRIPTOR},
      {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, CUDNN_ATTR_OPERATION_RESHAPE_YDESC,
       CUDNN_TYPE_BACKEND_DESCRIPTOR},
      {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_HANDLE,
       CUDNN_TYPE_HANDLE},
      {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_OPS,
       CUDNN_TYPE_BACKEND_DESCRIPTOR, 100},
      {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
       CUDNN_TYPE_BACKEND_DESCRIPTOR},
      {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE},
      {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
       CUDNN_TYPE_HANDLE},
      {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
       CUDNN_TYPE_BACKEND_DESCRIPTOR},
      {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
       100},
      {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
       CUDNN_TYPE_VOID_PTR, 100},
      {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
       CUDNN_TYPE_VOID_PTR},
  };
  add_convolutions(all);
  return all;
}

const std::vector<FakeRule>& rules() {
  static const std::vector<FakeRule> all = make_rules();
  return all;
}

cudnnStatus_t check_tensor(const FakeDescriptor& tensor) {
  if (tensor.attributes.at(CUDNN_ATTR_TENSOR_DIMENSIONS).count != kDims ||
      tensor.attributes.at(CUDNN_ATTR_TENSOR_STRIDES).count != kDims) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  for (const int64_t size : dims_of(tensor)) {
    if (size <= 0) return CUDNN_STATUS_BAD_PARAM;
  }
  return is_virtual(tensor) && is_by_value(tensor) ? CUDNN_STATUS_BAD_PARAM : CUDNN_STATUS_SUCCESS;
}

// c[B,H,M,N] = a[B,H,M,K] b[B,G,K,N]; G divides H.
bool fits_matmul(const FakeOperands& o) {
  const FakeDims a = dims_of(*o.x), b = dims_of(*o.b), c = dims_of(*o.y);
  return a[0] == b[0] && a[0] == c[0] && a[1] == c[1] && a[1] % b[1] == 0 && a[2] == c[2] &&
         a[3] == b[2] && b[3] == c[3];
}

bool fits_pointwise(const FakeDescriptor& operation, const FakeOperands& o) {
  const FakeDescriptor& settings = *operation.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  const auto mode = settings.get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
  const bool unary = mode == CUDNN_POINTWISE_EXP || mode == CUDNN_POINTWISE_LOG ||
                     mode == CUDNN_POINTWISE_GEN_INDEX;
  const bool selects = mode == CUDNN_POINTWISE_BINARY_SELECT;
  if ((o.b == nullptr) != unary || (o.t != nullptr) != selects) return false;
  if (dims_of(*o.x) != dims_of(*o.y)) return false;
  for (const FakeDescriptor* other : {o.b, o.t}) {
    if (other == nullptr) continue;
    for (size_t i = 0; i < kDims; ++i) {
      if (dims_of(*other)[i] != 1 && dims_of(*other)[i] != dims_of(*o.x)[i]) return false;
    }
  }
  if (selects && type_of(*o.t) != CUDNN_DATA_BOOLEAN) return false;
  if (mode == CUDNN_POINTWISE_CMP_GE && type_of(*o.y) != CUDNN_DATA_BOOLEAN) return false;
  if (mode != CUDNN_POINTWISE_GEN_INDEX) return true;
  return type_of(*o.y) == CUDNN_DATA_INT32 && settings.has(CUDNN_ATTR_POINTWISE_AXIS);
}

bool fits_reduction(const FakeOperands& o) {
  for (size_t i = 0; i < kDims; ++i) {
    if (dims_of(*o.x)[i] % dims_of(*o.y)[i] != 0) return false;
  }
  return true;
}

bool fits_reshape(const FakeOperands& o) {
  int64_t from = 1, to = 1;
  for (size_t i = 0; i < kDims; ++i) {
    from *= dims_of(*o.x)[i];
    to *= dims_of(*o.y)[i];
  }
  return from == to;
}

int64_t pixels_of(int64_t size, int64_t filter, int64_t padding, int64_t stride) {
  return (size + 2 * padding - filter) / stride + 1;
}

// Two spatial dims, cross-correlation without dilation, the same type for all tensors, groups that
// divide the channels, and factors that add the result or replace y by it. The library has more.
cudnnStatus_t check_convolution(const FakeDescriptor& operation) {
  const ConvolutionNames& names = *names_of(operation.type);
  const FakeDescriptor& settings = *operation.part(names.settings);
  const FakeConvolution c = convolution_of(operation);
  const auto mode = settings.get<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE);
  const auto dilations = settings.get<std::array<int64_t, 2>>(CUDNN_ATTR_CONVOLUTION_DILATIONS);
  const auto after = settings.get<std::array<int64_t, 2>>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
  const auto compute = settings.get<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE);
  const double alpha = operation.get<double>(names.alpha), beta = operation.get<double>(names.beta);
  if (mode != CUDNN_CROSS_CORRELATION || dilations != std::array<int64_t, 2>{1, 1} ||
      after != c.padding || compute != CUDNN_DATA_FLOAT ||
      settings.get<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) != 2 || alpha != 1.0 ||
      (beta != 0.0 && beta != 1.0)) {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  if (type_of(*c.images) != type_of(*c.pixels) || type_of(*c.images) != type_of(*c.filters)) {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  const FakeDims x = dims_of(*c.images), w = dims_of(*c.filters), y = dims_of(*c.pixels);
  bool fits = x[0] == y[0] && y[1] == w[0] && x[1] % w[1] == 0 && w[0] % (x[1] / w[1]) == 0;
  for (size_t i = 0; i < 2; ++i) {
    fits = fits && c.strides[i] > 0 && c.padding[i] >= 0 &&
           y[2 + i] == pixels_of(x[2 + i], w[2 + i], c.padding[i], c.strides[i]);
  }
  return fits ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
}

// Each tensor must have its own id and be written only once; a virtual one before it is read.
cudnnStatus_t check_graph(const FakeDescriptor& graph) {
  std::map<int64_t, const FakeDescriptor*> by_id;
  std::set<const FakeDescriptor*> written;
  for (const auto* operation : graph.all<const FakeDescriptor*>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    const FakeOperands o = operands_of(*operation);
    for (const FakeDescriptor* tensor : {o.x, o.b, o.t, o.y}) {
      if (tensor == nullptr) continue;
      const auto id = tensor->get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
      if (by_id.emplace(id, tensor).first->second != tensor) {
        return CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES;
      }
      if (tensor != o.y && is_virtual(*tensor) && !written.contains(tensor)) {
        return CUDNN_STATUS_BAD_PARAM;
      }
    }
    if (is_by_value(*o.y) || !written.insert(o.y).second) return CUDNN_STATUS_BAD_PARAM;
  }
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

const FakeRule* find_rule(cudnnBackendDescriptorType_t descriptor,
                          cudnnBackendAttributeName_t attribute) {
  const auto at = std::ranges::find_if(rules(), [&](const FakeRule& rule) {
    return rule.descriptor == descriptor && rule.attribute == attribute;
  });
  return at == rules().end() ? nullptr : &*at;
}

bool has_required(const FakeDescriptor& descriptor) {
  return std::ranges::all_of(rules(), [&](const FakeRule& rule) {
    return rule.descriptor != descriptor.type || !rule.required || descriptor.has(rule.attribute);
  });
}

size_t element_bytes(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
      return sizeof(bool);
    case CUDNN_TYPE_DATA_TYPE:
    case CUDNN_TYPE_HEUR_MODE:
    case CUDNN_TYPE_POINTWISE_MODE:
    case CUDNN_TYPE_REDUCTION_OPERATOR_TYPE:
    case CUDNN_TYPE_NUMERICAL_NOTE:
    case CUDNN_TYPE_CONVOLUTION_MODE:
      return sizeof(int32_t);
    default:
      return sizeof(int64_t);
  }
}

cudnnStatus_t check_shapes(const FakeDescriptor& descriptor) {
  const auto status = [](bool fits) {
    return fits ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
  };
  if (is_convolution(descriptor)) return check_convolution(descriptor);
  switch (descriptor.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      return check_tensor(descriptor);
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return status(fits_matmul(operands_of(descriptor)));
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return status(fits_pointwise(descriptor, operands_of(descriptor)));
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      return status(fits_reduction(operands_of(descriptor)));
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      return status(fits_reshape(operands_of(descriptor)));
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      return check_graph(descriptor);
    default:
      return CUDNN_STATUS_SUCCESS;
  }
}

FakeDims dims_of(const FakeDescriptor& tensor) {
  return tensor.get<FakeDims>(CUDNN_ATTR_TENSOR_DIMENSIONS);
}

FakeDims strides_of(const FakeDescriptor& tensor) {
  return tensor.get<FakeDims>(CUDNN_ATTR_TENSOR_STRIDES);
}

cudnnDataType_t type_of(const FakeDescriptor& tensor) {
  return tensor.get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
}

bool is_virtual(const FakeDescriptor& tensor) {
  return tensor.has(CUDNN_ATTR_TENSOR_IS_VIRTUAL) && tensor.get<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
}

bool is_by_value(const FakeDescriptor& tensor) {
  return tensor.has(CUDNN_ATTR_TENSOR_IS_BY_VALUE) &&
         tensor.get<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE);
}

bool is_convolution(const FakeDescriptor& operation) {
  return names_of(operation.type) != nullptr;
}

FakeConvolution convolution_of(const FakeDescriptor& operation) {
  const ConvolutionNames& names = *names_of(operation.type);
  const FakeDescriptor& settings = *operation.part(names.settings);
  return {.images = operation.part(names.images),
          .filters = operation.part(names.filters),
          .pixels = operation.part(names.pixels),
          .strides = settings.get<std::array<int64_t, 2>>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
          .padding = settings.get<std::array<int64_t, 2>>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)};
}

FakeOperands operands_of(const FakeDescriptor& operation) {
  if (const ConvolutionNames* names = names_of(operation.type); names != nullptr) {
    FakeOperands o{.y = operation.part(names->y), .adds = operation.get<double>(names->beta) != 0};
    for (const auto part : {names->images, names->filters, names->pixels}) {
      if (part != names->y) (o.x == nullptr ? o.x : o.b) = operation.part(part);
    }
    return o;
  }
  switch (operation.type) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return {.x = operation.part(CUDNN_ATTR_OPERATION_MATMUL_ADESC),
              .b = operation.part(CUDNN_ATTR_OPERATION_MATMUL_BDESC),
              .y = operation.part(CUDNN_ATTR_OPERATION_MATMUL_CDESC)};
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      return {.x = operation.part(CUDNN_ATTR_OPERATION_REDUCTION_XDESC),
              .y = operation.part(CUDNN_ATTR_OPERATION_REDUCTION_YDESC)};
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      return {.x = operation.part(CUDNN_ATTR_OPERATION_RESHAPE_XDESC),
              .y = operation.part(CUDNN_ATTR_OPERATION_RESHAPE_YDESC)};
    default:
      return {.x = operation.part(CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
              .b = operation.part(CUDNN_ATTR_OPERATION_POINTWISE_BDESC),
              .t = operation.part(CUDNN_ATTR_OPERATION_POINTWISE_TDESC),
              .y = operation.part(CUDNN_ATTR_OPERATION_POINTWISE_YDESC)};
  }
}

}  // namespace lockstep::test
