#include "agent/parallel/shard/sharded_exchange.h"

#include "agent/parallel/works.h"
#include "agent/parallel/world_totals.h"

namespace lockstep::parallel {
namespace {

// In the order in which backward completes them.
std::vector<Bucket> buckets_of(const ShardLayout& layout) {
  std::vector<Bucket> buckets;
  for (auto unit = layout.units().rbegin(); unit != layout.units().rend(); ++unit) {
    buckets.push_back({unit->first_id, unit->last_id, unit->offset, layout.count(*unit)});
  }
  return buckets;
}

}  // namespace

Result<std::unique_ptr<GradientExchange>> ShardedExchange::create(const Options& options,
                                                                  const ExchangeParts& parts,
                                                                  const ShardGroups& groups) {
  TRY_ASSIGN(ShardedGradients gradients,
             ShardedGradients::create(options.gradients, groups, parts.ops,
                                      {parts.compute, parts.communication}));
  gradients.observe_waits(options.observe_waits);
  const ShardLayout& layout = options.gradients.layout;
  TRY_ASSIGN(ShardUpdate update, ShardUpdate::create({.design = options.design,
                                                      .arena = layout.arena(),
                                                      .arrays = options.arrays,
                                                      .optimizer = options.optimizer,
                                                      .far = options.far,
                                                      .pieces = options.pieces,
                                                      .clock = options.clock,
                                                      .matrices = parts.matrices},
                                                     parts.ops, parts.compute));
  return std::unique_ptr<GradientExchange>(
      new ShardedExchange(parts, std::move(gradients), std::move(update), buckets_of(layout)));
}

Status ShardedExchange::update(const UpdateRequest& request) {
  kernels::SquareSum* squares = &request.values->squares;
  update_.add_squares(squares);
  TRY(add_up_squares(parts_.norm_groups,
                     {.sum = squares, .device = parts_.compute.device(), .stream = parts_.compute},
                     pending_));
  return update_.apply(request, request.values);
}

Status ShardedExchange::wait() {
  TRY(gradients_.wait());
  TRY(update_.wait());
  return wait_for(pending_);
}

}  // namespace lockstep::parallel
