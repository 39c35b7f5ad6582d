#include "agent/parallel/shard_update.h"

#include <limits>
#include <utility>

namespace lockstep::parallel {

Result<ShardUpdate> ShardUpdate::create(const Options& options, const kernels::OpTable& ops,
                                        kernels::Stream& stream) {
  TRY_ASSIGN(optim::Optimizer optimizer,
             optim::Optimizer::create(options.design, options.arena, options.arrays,
                                      options.optimizer, stream.device(), ops));
  ShardUpdate update(
      ops, stream, std::move(optimizer),
      optim::GradientNorm::create(options.design, options.arena, options.arrays, ops));
  update.matrices_ = options.matrices;
  if (options.far.size() > 0) {
    TRY_ASSIGN(update.far_,
               OffloadedTensors::create(stream, options.far, update.optimizer_.tensors(),
                                        options.pieces, *options.clock));
  }
  return update;
}

void ShardUpdate::add_squares(kernels::SquareSum* sum) const {
  norm_.add_squares(*stream_, sum);
}

Status ShardUpdate::apply(const UpdateRequest& request, StepValues* values) {
  // Without clipping a norm that isn't finite stops the update all the same.
  const double no_clipping = std::numeric_limits<double>::max();
  ops_->clip_scale(*stream_,
                   {.squares = &values->squares,
                    .scale = &values->scale,
                    .clip_norm = request.clip_norm > 0 ? request.clip_norm : no_clipping});
  const optim::OptimizerStep step{.learning_rate = request.learning_rate,
                                  .device_scale = &values->scale,
                                  .step = request.step,
                                  .first_update = request.first_update};
  if (!far_) {
    optimizer_.make_directions(*stream_, step);
    if (optimizer_.muon() != nullptr) {
      TRY(orthogonalise(*optimizer_.muon(), matrices_, *ops_, *stream_, messages_));
    }
    optimizer_.apply(*stream_, step);
    return {};
  }
  return far_->visit([&](std::span<const kernels::UpdatedTensor> tensors) {
    optimizer_.update(*stream_, step, tensors);
    return Status();
  });
}

}  // namespace lockstep::parallel
