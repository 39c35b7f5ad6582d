#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "agent/comm/communicator.h"
#include "agent/optim/optimizer.h"
#include "agent/parallel/buckets.h"
#include "agent/parallel/parameter_casts.h"
#include "agent/parallel/remote_parameters.h"
#include "agent/parallel/shard_update.h"
#include "agent/parallel/shared_segment.h"
#include "agent/parallel/step_sink.h"
#include "common/base/result.h"
#include "common/layout/sharding.h"
#include "common/layout/state_layout.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::parallel {

// A sink whose ranks also learn the new parameters: the way in which data-parallel ranks work
// together. The calls of a step are those of a StepSink, with update() between finish() and wait().
// One thread.
class GradientExchange : public StepSink {
 public:
  // Tells before begin_step() what update() will be called with, which an exchange may need
  // while backward goes on.
  virtual void expect_update(const UpdateRequest& /*request*/) {}
  // Takes over parameters that something other than update() has written to this rank's arena:
  // initial values (step 0), or those that `step` has left. All ranks call it.
  virtual Status parameters_written(int64_t /*step*/) { return {}; }
  // Adds up the gradients' squares, updates the parameters from the clipped gradients, and brings
  // the new ones to the memory of every rank. Updates nothing if the norm is not finite. Work
  // issued on the computing stream afterwards reads the new parameters. Errors are the
  // communicator's and the device's, here or from wait().
  virtual Status update(const UpdateRequest& request) = 0;

  // The optimizer's states that this rank can read and write, in the arena's layout; empty if it
  // has none (StateHolders).
  virtual std::span<const optim::OptimizerState> states() const = 0;
  virtual const std::vector<Bucket>& buckets() const = 0;

  virtual OffloadCounts offload_counts() const { return {}; }

  // Bytes that this rank has copied in steps to and from memory that the ranks share. Those that
  // went through the communicator are in its traffic().
  struct SharedTraffic {
    uint64_t bytes_written = 0;
    uint64_t bytes_read = 0;
  };
  virtual SharedTraffic shared_traffic() const { return {}; }
};

// Everything an exchange works with. It outlives the exchange.
struct ExchangeParts {
  comm::Communicator& group;  // the data axis; serves memory of the streams' device
  // The groups over which the squares of this rank's gradients add up, once they are reduced
  // (add_up_squares()).
  std::vector<comm::Communicator*> norm_groups;
  MatrixGroup matrices;            // of ExchangeOptions::muon_ranks
  const kernels::OpTable& ops;     // of the streams' device
  kernels::Stream& compute;        // gradients are made, and parameters read, on it
  kernels::Stream& communication;  // nobody else's
};

// The memory outlives the exchange. It is memory of the streams' device, with a float for each of
// the arena's, and zeroed at first. ExchangeMemory says which rank needs which.
struct ExchangeOptions {
  ModelDesign design;
  ParameterArena arena;
  int64_t bucket_bytes = 0;
  optim::OptimizerOptions optimizer;
  float* parameters = nullptr;
  float* gradients = nullptr;
  std::array<float*, optim::kStatesMax> states = {};  // in the order of optim::state_kinds()
  float* staging = nullptr;
  optim::MuonRanks muon_ranks = {};     // only with kAllReduce
  kernels::Workspace muon_memory = {};  // optim::muon_bytes(); null: allocated by the exchange
  kernels::Bf16* travelling = nullptr;  // for gradients that travel as bf16; null: as fp32
  // The bf16 copies of the parameters for products; null: there are none.
  kernels::Bf16* copies = nullptr;
  const ParameterCasts* casts = nullptr;  // make them; with copies
  // With kHost: the range that this rank updates; those of all ranks of the group are the arena.
  // They begin at multiples of 16 floats.
  StateLayout::ShardRange range = {};
  SharedSegment::Place shared = {};    // with kHost
  RemoteParameters* remote = nullptr;  // with kServers
  // The states that are far from the device (ShardUpdate::Options); only with kAllReduce.
  FarArrays far = {};
  PieceMemory pieces = {};
  const Clock* clock = nullptr;
};

// kInvalid for a group that cannot exchange so. Other errors are the communicator's and the
// device's.
Result<std::unique_ptr<GradientExchange>> make_exchange(Exchange exchange,
                                                        const ExchangeOptions& options,
                                                        const ExchangeParts& parts);

}  // namespace lockstep::parallel
