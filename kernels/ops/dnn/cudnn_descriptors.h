#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "kernels/ops/dnn/cudnn_library.h"
#include "kernels/ops/dnn/graph.h"

namespace lockstep::kernels::dnn {

// An owned descriptor of the cuDNN backend.
struct DescriptorRelease {
  using pointer = cudnnBackendDescriptor_t;
  decltype(&cudnnBackendDestroyDescriptor) destroy = nullptr;
  void operator()(cudnnBackendDescriptor_t descriptor) const { destroy(descriptor); }
};
using Descriptor = std::unique_ptr<void, DescriptorRelease>;

// Calls the library for one device. Errors name the call, its source location and the device, and
// include the library's message.
class CudnnCalls {
 public:
  // The library must outlive the object.
  CudnnCalls(const CudnnLibrary& library, int index) : library_(library), index_(index) {}

  const CudnnLibrary& library() const { return library_; }
  int index() const { return index_; }

  // Returns the error for a status that is not success.
  Error error(const char* call, cudnnStatus_t status, const std::source_location& where) const;
  Status check(const char* call, cudnnStatus_t status,
               const std::source_location& where = std::source_location::current()) const;

  Result<Descriptor> make(
      cudnnBackendDescriptorType_t type,
      const std::source_location& where = std::source_location::current()) const;
  template <class T>
  Status set(const Descriptor& descriptor, cudnnBackendAttributeName_t attribute,
             cudnnBackendAttributeType_t type, std::span<const T> values,
             const std::source_location& where = std::source_location::current()) const {
    return check("cudnnBackendSetAttribute",
                 library_.set_attribute(descriptor.get(), attribute, type,
                                        static_cast<int64_t>(values.size()), values.data()),
                 where);
  }
  template <class T>
  Status set(const Descriptor& descriptor, cudnnBackendAttributeName_t attribute,
             cudnnBackendAttributeType_t type, const T& value,
             const std::source_location& where = std::source_location::current()) const {
    return set(descriptor, attribute, type, std::span<const T>(&value, 1), where);
  }
  Status finalize(const Descriptor& descriptor,
                  const std::source_location& where = std::source_location::current()) const;

 private:
  const CudnnLibrary& library_;
  int index_ = 0;
};

// Alignment of tensors in device memory, as we describe them.
inline constexpr int64_t kTensorAlignment = 16;

// A finalized operation graph of the library, with everything it is made of.
struct DescribedGraph {
  std::vector<Descriptor> parts;  // tensors first: tensor i has the unique id i + 1
  std::vector<Descriptor> operations;
  Descriptor graph;
};

constexpr int64_t unique_id(size_t tensor) {
  return static_cast<int64_t>(tensor) + 1;
}

Result<DescribedGraph> describe(const CudnnCalls& calls, cudnnHandle_t handle, const Graph& graph);

// Returns whether the status means "not supported", which is not a failure.
constexpr bool is_not_supported(cudnnStatus_t status) {
  return status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000;
}

}  // namespace lockstep::kernels::dnn
