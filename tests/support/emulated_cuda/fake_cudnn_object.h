#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "kernels/ops/dnn/cudnn_library.h"

// The descriptors of fake_cudnn.h: their attributes, and which attributes may be set.
namespace lockstep::test {

struct FakeAttribute {
  int64_t count = 0;
  std::vector<std::byte> bytes;
};

struct FakeDescriptor {
  cudnnBackendDescriptorType_t type{};
  std::map<int, FakeAttribute> attributes;
  bool finalized = false;
  int64_t engine = 0;                     // of an engine and its config: index in the offer
  const FakeDescriptor* graph = nullptr;  // of a config
  int64_t workspace_bytes = 0;            // of a plan

  bool has(int attribute) const { return attributes.contains(attribute); }
  // Return the first element, and all elements. The attribute must be set.
  template <class T>
  T get(int attribute) const {
    T value;
    std::memcpy(&value, attributes.at(attribute).bytes.data(), sizeof value);
    return value;
  }
  template <class T>
  std::vector<T> all(int attribute) const {
    const FakeAttribute& at = attributes.at(attribute);
    std::vector<T> values(static_cast<size_t>(at.count));
    std::memcpy(values.data(), at.bytes.data(), at.bytes.size());
    return values;
  }
  // Returns a descriptor that it refers to; null if there is none.
  const FakeDescriptor* part(int attribute) const {
    return has(attribute) ? get<const FakeDescriptor*>(attribute) : nullptr;
  }
};

// The attributes, as cudnn_graph.h documents them.
struct FakeRule {
  cudnnBackendDescriptorType_t descriptor;
  cudnnBackendAttributeName_t attribute;
  cudnnBackendAttributeType_t type;
  int64_t count_max = 1;
  bool required = true;
};
// Returns null if the attribute cannot be set.
const FakeRule* find_rule(cudnnBackendDescriptorType_t descriptor,
                          cudnnBackendAttributeName_t attribute);
bool has_required(const FakeDescriptor& descriptor);
size_t element_bytes(cudnnBackendAttributeType_t type);

// Runs the other checks of finalization.
cudnnStatus_t check_shapes(const FakeDescriptor& descriptor);

// Attributes of a finalized tensor.
using FakeDims = std::array<int64_t, 4>;
FakeDims dims_of(const FakeDescriptor& tensor);
FakeDims strides_of(const FakeDescriptor& tensor);
cudnnDataType_t type_of(const FakeDescriptor& tensor);
bool is_virtual(const FakeDescriptor& tensor);
bool is_by_value(const FakeDescriptor& tensor);

// The tensors of an operation: those it reads, some of which may be null, and the one it writes.
struct FakeOperands {
  const FakeDescriptor* x = nullptr;
  const FakeDescriptor* b = nullptr;
  const FakeDescriptor* t = nullptr;
  const FakeDescriptor* y = nullptr;
  bool adds = false;  // y += the result
};
FakeOperands operands_of(const FakeDescriptor& operation);

// A convolution, in any of its passes: images [N,C,H,W], filters [K,C/G,R,S], pixels [N,K,P,Q].
struct FakeConvolution {
  const FakeDescriptor* images = nullptr;
  const FakeDescriptor* filters = nullptr;
  const FakeDescriptor* pixels = nullptr;
  std::array<int64_t, 2> strides = {};
  std::array<int64_t, 2> padding = {};
};
bool is_convolution(const FakeDescriptor& operation);
FakeConvolution convolution_of(const FakeDescriptor& operation);

// Computes a graph. `addresses` has the non-virtual tensors by unique id.
cudnnStatus_t compute(const FakeDescriptor& graph, const std::map<int64_t, void*>& addresses);

}  // namespace lockstep::test
