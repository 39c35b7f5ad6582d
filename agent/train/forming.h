#pragma once

#include <memory>
#include <string>

#include "agent/comm/communicator.h"
#include "agent/train/data/windows.h"
#include "agent/train/exit_reason.h"
#include "common/api/collective_board.h"
#include "common/api/worker_config.h"
#include "common/base/result.h"
#include "common/layout/mesh.h"
#include "kernels/device/device.h"
#include "kernels/ops/matmul.h"

namespace lockstep {

// Connects this rank with all others of its round, on the addresses of the assignment. What it does
// is told on the board, if there is one, which outlives it.
Result<std::unique_ptr<Communicator>> form_world(const WorkerConfig& config, ExitReason& reason,
                                                 CollectiveBoard* board);

// The world for a rank that computes on this device: as it is for the CPU; for a GPU a communicator
// that serves its memory too, by NCCL, or by way of host memory where NCCL can't
// (agent/comm/gpu/device_communicator.h; not run on a GPU). A collective operation, of ranks whose
// devices are of one type. Groups that are made of it serve that memory as well.
Result<std::unique_ptr<Communicator>> serve_device(std::unique_ptr<Communicator> world,
                                                   Device device, ExitReason& reason);

// What all ranks compute with: machines differ, results must not.
struct Agreement {
  Precision precision = Precision::kF32;  // kBf16 only where every rank does it natively
  int threads = 1;                        // the smallest number of any rank

  bool operator==(const Agreement&) const = default;
};
// One rank's side of it.
struct RankTraits {
  int64_t native_bf16 = 0;
  int64_t threads = 1;
  uint64_t instructions =
      0;  // a digest of library and instruction set, or of the GPU: warned about if they differ
};
// A collective operation.
Result<Agreement> agree(Communicator& world, const RankTraits& mine, bool want_bf16,
                        ExitReason& reason);
// `gpu`: that this rank computes on; without a name on the CPU. A GPU's products take bf16
// natively: this version is built for such alone (sm_80 and later).
RankTraits traits_of_this_machine(const WorkerConfig& config, const DeviceInfo& gpu);

// How the sequences of a step are spread; kInvalid, by path, where they can't be spread evenly.
Result<BatchShape> batch_shape(const BatchSpec& spec, int64_t data_size);

Mesh mesh_of(const WorldAssignment& world);

}  // namespace lockstep
