#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "agent/comm/data_type.h"
#include "common/base/result.h"
#include "kernels/device/device.h"

namespace lockstep::comm {

// A point in the order of a stream. Thread-safe.
class Mark {
 public:
  virtual ~Mark() = default;
  virtual Result<bool> passed() const = 0;
  // Makes all later work on that stream run after this point.
  virtual Status make_stream_wait(void* stream) const = 0;
};

struct BooleanArgs {
  void* to = nullptr;
  const void* from = nullptr;  // may be `to`
  size_t count = 0;
};

// The device operations that communication needs. Streams are given by their handle
// (Stream::handle()); the work on one stream runs in order. Thread-safe.
class CommDevice {
 public:
  virtual ~CommDevice() = default;
  virtual kernels::Device device() const = 0;

  // Creates a stream; get() is its handle.
  virtual Result<std::shared_ptr<void>> create_stream() = 0;
  // Allocate memory of the device, and page-locked memory of the host. `by` names the purpose in
  // errors. Freeing may wait for everything that the device is doing.
  virtual Result<std::shared_ptr<void>> allocate(size_t bytes, std::string_view by) = 0;
  virtual Result<std::shared_ptr<void>> allocate_pinned(size_t bytes, std::string_view by) = 0;

  // Marks the point after everything that was issued on the stream so far.
  virtual Result<std::unique_ptr<Mark>> mark(void* stream) = 0;
  virtual Status copy(void* stream, const kernels::CopyArgs& args) = 0;
  // to[i] = from[i] is 0 ? 0 : 1 (a NaN is not 0).
  virtual Status to_boolean(void* stream, DataType type, const BooleanArgs& args) = 0;
  // Computes data[i] /= ranks, as divide_by_ranks (reduce.h).
  struct DivideArgs {
    void* data = nullptr;
    size_t count = 0;
    int ranks = 1;
  };
  virtual Status divide(void* stream, DataType type, const DivideArgs& args) = 0;
};

// Makes a device over kernels/device. It also serves the CPU, where everything is done when a call
// returns.
std::unique_ptr<CommDevice> make_comm_device(kernels::Device device);

}  // namespace lockstep::comm
