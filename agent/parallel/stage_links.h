#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "agent/comm/communicator.h"
#include "agent/parallel/stage_channel.h"
#include "common/base/result.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::parallel {

// The channels of a stage with its neighbours. Null where there is none.
struct StageLinks {
  StageLinks() = default;
  StageLinks(const StageLinks&) = delete;
  StageLinks& operator=(const StageLinks&) = delete;
  // Ends the channels in the order in which they were made: the two ends of a channel wait for each
  // other, and the neighbours of an interleaved pipeline are a ring.
  ~StageLinks();

  StageChannel* activations_in = nullptr;   // from the stage before
  StageChannel* activations_out = nullptr;  // to the next one
  StageChannel* gradients_in = nullptr;     // from the next one
  StageChannel* gradients_out = nullptr;    // to the stage before
  std::vector<std::unique_ptr<StageChannel>>
      channels;  // these, in the order in which they were made

  // Waits for the results of everything under way. Returns the first error.
  Status wait() const;
};

struct StageLinkOptions {
  bool is_ring = false;  // the last stage also sends to the first one
  kernels::DType travelling = kernels::DType::kF32;
  size_t message_bytes = 0;   // of the largest message
  kernels::Workspace memory;  // of the stream's device, for kChannelSlots messages of each channel
};
// Makes the channels of a stage: two for each neighbour. `stages` has the ranks of the pipeline, by
// stage, and all of them call it. Memory, ops and stream outlive the links. Errors are those of
// StageChannel::create().
Status make_stage_links(comm::Communicator& stages, const StageLinkOptions& options,
                        const kernels::OpTable& ops, kernels::Stream& compute, StageLinks& links);

}  // namespace lockstep::parallel
