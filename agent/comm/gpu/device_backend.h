#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agent/comm/call_check.h"
#include "agent/comm/communicator.h"
#include "agent/comm/operation.h"

namespace lockstep {

// A call that was checked, and whom to tell when it is over.
struct DeviceCall {
  Call call;
  CallMemory memory;
  Operation* operation = nullptr;  // its header has kind, number and group
};

// One way to carry out operations on memory of a device, for one group. Thread-safe; outlives what
// was started.
class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;

  // Issues them at once. Each operation is finished, once, by any thread.
  virtual void start(std::vector<DeviceCall> calls) = 0;
  // The same for a group of some of its ranks, whose communicator on the host is `host`, which
  // outlives it. Sends nothing and doesn't wait.
  virtual Result<std::unique_ptr<DeviceBackend>> sub_group(Communicator& host) = 0;
  // Breaks it with this error, which is not told to other ranks here; the first one counts.
  virtual void fail(const Error& error) = 0;
  virtual void set_silence_limit(Duration limit) = 0;

  virtual DeviceTraits device_traits() const = 0;
  // "NCCL 2.28.9", "host memory"
  virtual std::string name() const = 0;
  virtual CollectiveCounts counts() const = 0;
};

}  // namespace lockstep
