#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agent/comm/communicator.h"
#include "agent/comm/gpu/backend_choice.h"
#include "agent/comm/gpu/comm_device.h"
#include "agent/comm/gpu/nccl_api.h"
#include "agent/comm/gpu/staging_plan.h"

namespace lockstep {

struct DeviceOptions {
  Device device;  // of this rank
  DeviceBackendKind backend = DeviceBackendKind::kAuto;
  Duration limit = std::chrono::seconds(60);  // as Call::limit, for NCCL
  std::shared_ptr<const Clock> clock = std::make_shared<SystemClock>();
  // For NCCL: ranks compare their calls before every collective (NcclBackend).
  bool check_mismatches = false;
};

// A communicator that serves memory of the rank's GPU too: by NCCL where every rank has a GPU of
// its own and the same NCCL, else by way of host memory. What is in memory of the CPU goes to
// `host` as before; calls given together are of one kind of memory. Not run on a GPU.
//
// A collective of all ranks of `host`. Its groups have a backend each; dropping one waits for the
// others to do so (NcclBackend). On the GPU, operations of several groups under way at once must be
// able to run at once: two groups whose operations one GPU does one behind the other, in another
// order than a second GPU of both does, wait for each other until their time limits.
//
// By NCCL, start() returns at once but for the first operation of a group, where it waits until
// every rank of the group has come to one and NCCL is formed, and the first between ranks, where it
// waits until NCCL has connected them, for which the others have to issue it too; a group that has
// none takes nothing of NCCL. Later, what was issued apart on one stream runs one after the other.
// So sends and receives that wait for one another are given together, in one call of start() or
// run(), and groups that share ranks are first used in one order; else they stand until the time
// limit (kTimeout, in words). By way of host memory neither is needed.
//
// Its operations count in counts(), in traffic() (by NCCL as traffic_of() has it), and show on the
// progress board: those by NCCL as of a group of the same ranks, beside the host's; those by way of
// host memory part by part, as what the host carries out.
Result<std::unique_ptr<Communicator>> make_device_communicator(std::unique_ptr<Communicator> host,
                                                               const DeviceOptions& options);

// The same over a device and an NCCL that are given; `nccl` null: host memory.
struct DeviceParts {
  std::shared_ptr<CommDevice> device;
  std::shared_ptr<NcclApi> nccl;
  std::string why;                 // the backend was chosen
  std::vector<std::string> paths;  // by rank, from this one; empty: those of the host
  size_t staging_bytes = kStagingBytes;
};
Result<std::unique_ptr<Communicator>> make_device_communicator(std::unique_ptr<Communicator> host,
                                                               const DeviceOptions& options,
                                                               const DeviceParts& parts);

}  // namespace lockstep
