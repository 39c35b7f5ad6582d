#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agent/comm/communicator.h"
#include "agent/comm/gpu/backend_choice.h"
#include "agent/comm/gpu/comm_device.h"
#include "agent/comm/gpu/nccl_api.h"
#include "agent/comm/gpu/staging_plan.h"

namespace lockstep::comm {

struct DeviceOptions {
  kernels::Device device;  // of this rank
  DeviceBackendKind backend = DeviceBackendKind::kAuto;
  Duration limit = std::chrono::seconds(60);  // as Call::limit, for NCCL
  std::shared_ptr<const Clock> clock = std::make_shared<SystemClock>();
  // For NCCL: ranks compare their calls before every collective (NcclBackend).
  bool check_mismatches = false;
};

// A communicator that also serves memory of the rank's GPU. It uses NCCL if every rank has a GPU of
// its own and the same NCCL, else it goes through host memory. Calls on memory of the CPU still go
// to `host`; calls given together must use one kind of memory. Run on one GPU: with one rank, and
// with two that share it.
//
// A collective of all ranks of `host`. Each group has a backend of its own; destroying a
// communicator waits until the others destroy theirs (NcclBackend). Operations of several groups
// that are under way together must be able to run on the GPU together. Suppose two GPUs serve the
// same two groups, each runs their operations one after the other, and in different orders. Then
// the groups wait for each other until their time limits.
//
// With NCCL, start() returns immediately, with two exceptions:
// - The first operation of a group waits until every rank of the group has started one and NCCL is
//   initialised. A group without operations takes no resources of NCCL.
// - The first operation between ranks waits until NCCL has connected them, for which the other
//   ranks have to issue it too.
// Later, operations that were issued separately on one stream run one after another. So sends and
// receives that wait for one another are given together, in one call of start() or run(), and
// groups that share ranks are first used in one order. Otherwise they block until the time limit
// (kTimeout, with an explanation). Through host memory neither is needed.
//
// Its operations count in counts() and in traffic() (for NCCL as traffic_of() estimates it), and
// show on the progress board. NCCL's appear as those of a separate group of the same ranks. Those
// through host memory appear part by part, as the host carries them out.
Result<std::unique_ptr<Communicator>> make_device_communicator(std::unique_ptr<Communicator> host,
                                                               const DeviceOptions& options);

// The same over a given device and NCCL; `nccl` null: host memory.
struct DeviceParts {
  std::shared_ptr<CommDevice> device;
  std::shared_ptr<NcclApi> nccl;
  std::string why;                 // reason for the choice of the backend
  std::vector<std::string> paths;  // by rank, from this one; empty: the host's
  size_t staging_bytes = kStagingBytes;
};
Result<std::unique_ptr<Communicator>> make_device_communicator(std::unique_ptr<Communicator> host,
                                                               const DeviceOptions& options,
                                                               const DeviceParts& parts);

}  // namespace lockstep::comm
