#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "agent/optim/clip.h"
#include "agent/optim/optimizer.h"
#include "agent/parallel/matrix_exchange.h"
#include "agent/parallel/offload/offloaded_tensors.h"
#include "agent/parallel/step_scalars.h"
#include "agent/parallel/works.h"
#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/layout/model_design.h"
#include "common/layout/parameters.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::parallel {

struct UpdateRequest {
  int64_t step = 1;          // counted from 1
  int64_t first_update = 1;  // as in optim::OptimizerStep
  double learning_rate = 0;
  double clip_norm = 0;  // of the gradients; 0: no limit
  // In memory of the computing stream's device. The squares are zero before the update, and
  // afterwards those of all gradients, the same bits on every rank.
  StepValues* values = nullptr;
};

// The update of a rank's slices of the parameters, wherever they are: the squares of their
// gradients, clipping, and the optimizer. Slices of several ranks give the same bits as the whole
// arena on one, if they begin at multiples of 16 floats. One thread.
class ShardUpdate {
 public:
  struct Options {
    ModelDesign design;
    ParameterArena arena;
    // Memory of the stream's device, which outlives the update.
    optim::OptimizerArenas arrays;
    optim::OptimizerOptions optimizer;
    // Arrays of `arrays` that are far from the device (FarMemory::data()) pass through these.
    FarArrays far = {};
    PieceMemory pieces = {};
    const Clock* clock = nullptr;  // only with far arrays
    MatrixGroup matrices = {};     // with kMuon
  };
  // The ops and the stream outlive it. kUnavailable if memory is short.
  static Result<ShardUpdate> create(const Options& options, const kernels::OpTable& ops,
                                    kernels::Stream& stream);

  // These issue. add_squares() adds those that these slices count in the norm (optim/clip.h).
  void add_squares(kernels::SquareSum* sum) const;
  // Updates the slices by all gradients' squares in `values`, and sets its scale. Changes no
  // parameter if the norm is not finite.
  // With far arrays it returns when they have the new values. With kMuon all ranks of `matrices`
  // call it. Errors are those of far memory and of orthogonalise().
  Status apply(const UpdateRequest& request, StepValues* values);
  // Waits for messages of apply() that may be under way.
  Status wait() { return wait_for(messages_); }
  // Makes the copies for products from parameters that were loaded (Optimizer::refresh_copies()).
  void refresh_copies(int64_t step) { optimizer_.refresh_copies(*stream_, step); }

  // Counts the bytes to and from far arrays, and their time.
  OffloadCounts offload_counts() const { return far_ ? far_->counts() : OffloadCounts(); }

  std::span<const optim::OptimizerState> states() const { return optimizer_.states(); }

 private:
  ShardUpdate(const kernels::OpTable& ops, kernels::Stream& stream, optim::Optimizer optimizer,
              optim::GradientNorm norm)
      : ops_(&ops), stream_(&stream), optimizer_(std::move(optimizer)), norm_(std::move(norm)) {}

  const kernels::OpTable* ops_;
  kernels::Stream* stream_;
  optim::Optimizer optimizer_;
  optim::GradientNorm norm_;
  std::optional<OffloadedTensors> far_;
  MatrixGroup matrices_;
  std::vector<comm::Work> messages_;
};

}  // namespace lockstep::parallel
