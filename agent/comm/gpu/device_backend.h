#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agent/comm/call_check.h"
#include "agent/comm/communicator.h"
#include "agent/comm/operation.h"

namespace lockstep::comm {

// A checked call, and the operation to finish when it is over.
struct DeviceCall {
  Call call;
  CallMemory memory;
  Operation* operation = nullptr;  // its header has kind, number and group
};

// One way to carry out operations on device memory, for one group. Thread-safe. Outlives the
// operations it has started.
class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;

  // Issues the calls together. Finishes each operation exactly once, on any thread.
  virtual void start(std::vector<DeviceCall> calls) = 0;
  // Makes a backend for a group of some of its ranks. `host` is the group's communicator on the
  // host and outlives the backend. Sends nothing and does not wait.
  virtual Result<std::unique_ptr<DeviceBackend>> sub_group(Communicator& host) = 0;
  // Breaks the backend with this error, without telling other ranks; the first error wins.
  virtual void fail(const Error& error) = 0;
  virtual void set_silence_limit(Duration limit) = 0;

  virtual DeviceTraits device_traits() const = 0;
  // "NCCL 2.28.9", "host memory"
  virtual std::string name() const = 0;
  virtual CollectiveCounts counts() const = 0;
};

}  // namespace lockstep::comm
