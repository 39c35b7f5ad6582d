// Computes a graph's operations on the CPU. A virtual tensor has its own memory, addressed by its
// strides like any other, so that reshaping has the library's meaning.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "tests/support/emulated_cuda/fake_cudnn_object.h"

namespace lockstep::test {

namespace {

int64_t offset_of(const FakeDims& index, const FakeDims& strides) {
  int64_t offset = 0;
  for (size_t i = 0; i < index.size(); ++i) offset += index[i] * strides[i];
  return offset;
}

float bf16_value(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}
uint16_t bf16_bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return 0x7FC0;
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

double rounded(double value, cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_BFLOAT16:
      return bf16_value(bf16_bits(static_cast<float>(value)));
    case CUDNN_DATA_FLOAT:
      return static_cast<float>(value);
    default:
      return value;
  }
}

// The elements of one tensor, in the caller's or its own memory.
class Elements {
 public:
  Elements() = default;
  Elements(const FakeDescriptor& tensor, void* memory)
      : dims_(test::dims_of(tensor)),
        strides_(test::strides_of(tensor)),
        type_(test::type_of(tensor)),
        memory_(memory) {
    if (memory != nullptr) return;
    int64_t last = 0;
    for (size_t i = 0; i < dims_.size(); ++i) last += (dims_[i] - 1) * strides_[i];
    own_.assign(static_cast<size_t>(last + 1), std::numeric_limits<double>::quiet_NaN());
  }

  const FakeDims& dims() const { return dims_; }
  const FakeDims& strides() const { return strides_; }
  double at_offset(int64_t offset) const {
    if (memory_ == nullptr) return own_.at(static_cast<size_t>(offset));
    if (type_ == CUDNN_DATA_FLOAT) return static_cast<const float*>(memory_)[offset];
    return bf16_value(static_cast<const uint16_t*>(memory_)[offset]);
  }
  // Broadcasts dims of size 1, and in groups dims that divide the index's.
  double at(const FakeDims& index, const FakeDims& of) const {
    FakeDims own = index;
    for (size_t i = 0; i < own.size(); ++i) own[i] = index[i] / (of[i] / dims_[i]);
    return at_offset(offset_of(own, strides_));
  }
  double at(const FakeDims& index) const { return at_offset(offset_of(index, strides_)); }
  void put(const FakeDims& index, double value) {
    const int64_t offset = offset_of(index, strides_);
    if (memory_ == nullptr) {
      own_.at(static_cast<size_t>(offset)) = rounded(value, type_);
    } else if (type_ == CUDNN_DATA_FLOAT) {
      static_cast<float*>(memory_)[offset] = static_cast<float>(value);
    } else {
      static_cast<uint16_t*>(memory_)[offset] = bf16_bits(static_cast<float>(value));
    }
  }

 private:
  FakeDims dims_{};
  FakeDims strides_{};
  cudnnDataType_t type_ = CUDNN_DATA_FLOAT;
  void* memory_ = nullptr;
  std::vector<double> own_;  // used if there is no memory
};

template <class Body>
void for_each(const FakeDims& dims, Body body) {
  FakeDims i{};
  for (i[0] = 0; i[0] < dims[0]; ++i[0]) {
    for (i[1] = 0; i[1] < dims[1]; ++i[1]) {
      for (i[2] = 0; i[2] < dims[2]; ++i[2]) {
        for (i[3] = 0; i[3] < dims[3]; ++i[3]) body(i);
      }
    }
  }
}

// A copy of a tensor, for operations that read each element often.
struct Dense {
  explicit Dense(const Elements& elements)
      : dims(elements.dims()), values(static_cast<size_t>(dims[0] * dims[1] * dims[2] * dims[3])) {
    for_each(dims, [&](const FakeDims& i) { at(i) = elements.at(i); });
  }
  double& at(const FakeDims& i) {
    const int64_t offset = ((i[0] * dims[1] + i[1]) * dims[2] + i[2]) * dims[3] + i[3];
    return values[static_cast<size_t>(offset)];
  }

  FakeDims dims;
  std::vector<double> values;
};

class Evaluation {
 public:
  explicit Evaluation(const std::map<int64_t, void*>& addresses) : addresses_(addresses) {}

  cudnnStatus_t run(const FakeDescriptor& operation) {
    const FakeOperands o = operands_of(operation);
    for (const FakeDescriptor* tensor : {o.x, o.b, o.t, o.y}) {
      if (tensor == nullptr) continue;
      if (const cudnnStatus_t status = place(*tensor); status != CUDNN_STATUS_SUCCESS) {
        return status;
      }
    }
    if (is_convolution(operation)) {
      convolve(convolution_of(operation), o);
      return CUDNN_STATUS_SUCCESS;
    }
    switch (operation.type) {
      case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        matmul(o);
        break;
      case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        reduce(o, operation.part(CUDNN_ATTR_OPERATION_REDUCTION_DESC)
                      ->get<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR));
        break;
      case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        reshape(o);
        break;
      default:
        return pointwise(o, *operation.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR));
    }
    return CUDNN_STATUS_SUCCESS;
  }

 private:
  cudnnStatus_t place(const FakeDescriptor& tensor) {
    if (elements_.contains(&tensor)) return CUDNN_STATUS_SUCCESS;
    void* memory = nullptr;
    if (!is_virtual(tensor)) {
      const auto at = addresses_.find(tensor.get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID));
      if (at == addresses_.end() || at->second == nullptr) {
        return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
      }
      memory = at->second;
      const auto alignment = tensor.get<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
      if (!is_by_value(tensor) &&
          reinterpret_cast<uintptr_t>(memory) % static_cast<uintptr_t>(alignment) != 0) {
        return CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER;
      }
    }
    elements_.emplace(&tensor, Elements(tensor, memory));
    return CUDNN_STATUS_SUCCESS;
  }

  void matmul(const FakeOperands& o) {
    const Elements &a = elements_[o.x], &b = elements_[o.b];
    Elements& c = elements_[o.y];
    const int64_t group = a.dims()[1] / b.dims()[1];
    for_each(c.dims(), [&](const FakeDims& i) {
      double sum = 0.0;
      for (int64_t k = 0; k < a.dims()[3]; ++k) {
        sum += a.at({i[0], i[1], i[2], k}) * b.at({i[0], i[1] / group, k, i[3]});
      }
      c.put(i, sum);
    });
  }

  // Each pass adds, for all pixels and taps, the product of two of the tensors to the third.
  void convolve(const FakeConvolution& c, const FakeOperands& o) {
    Dense x(elements_[c.images]), w(elements_[c.filters]), y(elements_[c.pixels]);
    Elements& result = elements_[o.y];
    Dense& sums = o.y == c.images ? x : o.y == c.filters ? w : y;
    std::ranges::fill(sums.values, 0.0);
    const FakeDims &in = x.dims, &filter = w.dims;
    const int64_t filters_of_group = filter[0] / (in[1] / filter[1]);
    for_each(y.dims, [&](const FakeDims& out) {
      double& pixel = y.at(out);
      const int64_t first = out[1] / filters_of_group * filter[1];
      for (int64_t r = 0; r < filter[2]; ++r) {
        const int64_t h = out[2] * c.strides[0] - c.padding[0] + r;
        if (h < 0 || h >= in[2]) continue;
        for (int64_t s = 0; s < filter[3]; ++s) {
          const int64_t column = out[3] * c.strides[1] - c.padding[1] + s;
          if (column < 0 || column >= in[3]) continue;
          for (int64_t channel = 0; channel < filter[1]; ++channel) {
            double& image = x.at({out[0], first + channel, h, column});
            double& tap = w.at({out[1], channel, r, s});
            if (&sums == &y) pixel += image * tap;
            if (&sums == &x) image += pixel * tap;
            if (&sums == &w) tap += pixel * image;
          }
        }
      }
    });
    for_each(result.dims(), [&](const FakeDims& at) {
      result.put(at, (o.adds ? result.at(at) : 0.0) + sums.at(at));
    });
  }

  // If a dim is not reduced to one, groups of consecutive elements are combined.
  void reduce(const FakeOperands& o, cudnnReduceTensorOp_t reduction) {
    const Elements& x = elements_[o.x];
    Elements& y = elements_[o.y];
    const bool is_sum = reduction == CUDNN_REDUCE_TENSOR_ADD;
    FakeDims each{};
    for (size_t i = 0; i < each.size(); ++i) each[i] = x.dims()[i] / y.dims()[i];
    for_each(y.dims(), [&](const FakeDims& i) {
      double result = is_sum ? 0.0 : -std::numeric_limits<double>::infinity();
      for_each(each, [&](const FakeDims& j) {
        FakeDims from{};
        for (size_t d = 0; d < from.size(); ++d) from[d] = i[d] * each[d] + j[d];
        result = is_sum ? result + x.at(from) : std::max(result, x.at(from));
      });
      y.put(i, result);
    });
  }

  void reshape(const FakeOperands& o) {
    const Elements& x = elements_[o.x];
    Elements& y = elements_[o.y];
    for_each(y.dims(),
             [&](const FakeDims& i) { y.put(i, x.at_offset(offset_of(i, y.strides()))); });
  }

  cudnnStatus_t pointwise(const FakeOperands& o, const FakeDescriptor& settings) {
    const auto mode = settings.get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
    const int64_t axis = settings.has(CUDNN_ATTR_POINTWISE_AXIS)
                             ? settings.get<int64_t>(CUDNN_ATTR_POINTWISE_AXIS)
                             : 0;
    const Elements& x = elements_[o.x];
    Elements& y = elements_[o.y];
    bool known = true;
    for_each(y.dims(), [&](const FakeDims& i) {
      const double left = x.at(i);
      const double right = o.b == nullptr ? 0.0 : elements_[o.b].at(i, y.dims());
      const bool chosen = o.t != nullptr && elements_[o.t].at(i, y.dims()) != 0.0;
      switch (mode) {
        case CUDNN_POINTWISE_ADD:
          return y.put(i, left + right);
        case CUDNN_POINTWISE_SUB:
          return y.put(i, left - right);
        case CUDNN_POINTWISE_MUL:
          return y.put(i, left * right);
        case CUDNN_POINTWISE_DIV:
          return y.put(i, left / right);
        case CUDNN_POINTWISE_EXP:
          return y.put(i, std::exp(left));
        case CUDNN_POINTWISE_LOG:
          return y.put(i, std::log(left));
        case CUDNN_POINTWISE_GEN_INDEX:
          return y.put(i, static_cast<double>(i.at(static_cast<size_t>(axis))));
        case CUDNN_POINTWISE_CMP_GE:
          return y.put(i, left >= right ? 1.0 : 0.0);
        case CUDNN_POINTWISE_BINARY_SELECT:
          return y.put(i, chosen ? left : right);
        default:
          known = false;
      }
    });
    return known ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
  }

  const std::map<int64_t, void*>& addresses_;
  std::map<const FakeDescriptor*, Elements> elements_;
};

}  // namespace

cudnnStatus_t compute(const FakeDescriptor& graph, const std::map<int64_t, void*>& addresses) {
  Evaluation evaluation(addresses);
  for (const auto* operation : graph.all<const FakeDescriptor*>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    if (const cudnnStatus_t status = evaluation.run(*operation); status != CUDNN_STATUS_SUCCESS) {
      return status;
    }
  }
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace lockstep::test
