#pragma once

#include <memory>
#include <string>

#include "agent/comm/communicator.h"
#include "agent/comm/handshake.h"
#include "agent/train/data/windows.h"
#include "common/api/collective_board.h"
#include "common/api/worker_config.h"
#include "common/base/result.h"
#include "common/layout/mesh.h"
#include "kernels/device/device.h"
#include "kernels/ops/matmul.h"

namespace lockstep::train {

// kInvalid, blaming the configuration, if this version cannot carry out the world's layout or
// roles. A rank that ignored them would train something else than its peers.
Status check_world(const WorldAssignment& world);

// Returns this rank's identity in remote calls. Errors of the job's token blame the configuration.
Result<comm::Identity> identity_of(const WorkerConfig& config);

// Connects this rank with all others of its round, at the addresses of the assignment. The
// communicator reports its progress on `board`, which may be null and outlives the communicator.
Result<std::unique_ptr<comm::Communicator>> form_world(const WorkerConfig& config,
                                                       CollectiveBoard* board);

// Returns the world for a rank that computes on `device`. For the CPU that is `world` itself. For a
// GPU it also serves GPU memory: through NCCL, or through host memory where NCCL can't
// (agent/comm/gpu/device_communicator.h; untested on several GPUs). Collective; the devices of all
// ranks have one type. Groups made from the result serve GPU memory, too. A world that is encrypted
// and has several members never uses NCCL.
Result<std::unique_ptr<comm::Communicator>> serve_device(std::unique_ptr<comm::Communicator> world,
                                                         kernels::Device device,
                                                         const WorldAssignment& assignment);

// Settings that all ranks compute with. Machines differ, but results must not.
struct Agreement {
  kernels::Precision precision =
      kernels::Precision::kF32;  // kBf16 only where every rank does it natively
  int threads = 1;               // the smallest number of any rank

  bool operator==(const Agreement&) const = default;
};
// One rank's abilities, from which all ranks derive the Agreement.
struct RankTraits {
  int64_t native_bf16 = 0;
  int64_t threads = 1;
  // Digest of the library and instruction set, or of the GPU. Rank 0 warns if ranks differ.
  uint64_t instructions = 0;
};
// Exchanges the traits of all ranks and returns what they agree on. Collective.
Result<Agreement> agree(comm::Communicator& world, const RankTraits& mine, bool want_bf16);
// Returns rank 0's rules about losses, which all ranks follow: those of one round may have been
// assigned older and newer ones. Collective.
Result<LossRules> agree_on_losses(comm::Communicator& world, const LossRules& mine);
// Returns the traits of this rank. `gpu` is the GPU that it computes on, without a name on the CPU.
// Every GPU that this version is built for (sm_80 and later) multiplies bf16.
RankTraits traits_of_this_machine(const WorkerConfig& config, const kernels::DeviceInfo& gpu);

// Splits the samples of a step among ranks and micro-batches, which have at most spec.micro rows,
// or one more if some would otherwise have none. kInvalid, with the field's path and blaming the
// configuration, if there are too few, or if an interleaved pipeline's are not even.
Result<BatchShape> batch_shape(const BatchSpec& spec, const Mesh& mesh);

Mesh mesh_of(const WorldAssignment& world);

}  // namespace lockstep::train
