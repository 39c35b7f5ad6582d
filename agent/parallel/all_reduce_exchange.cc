#include "agent/parallel/all_reduce_exchange.h"

#include "agent/parallel/works.h"
#include "agent/parallel/world_totals.h"

namespace lockstep::parallel {

Result<std::unique_ptr<GradientExchange>> AllReduceExchange::create(const ExchangeOptions& options,
                                                                    const ExchangeParts& parts) {
  TRY_ASSIGN(BucketedSink sink,
             BucketedSink::create({.buckets = {.arena = options.arena,
                                               .bucket_bytes = options.bucket_bytes,
                                               .gradients = options.gradients},
                                   .travelling = options.travelling},
                                  parts.group, parts.ops, {parts.compute, parts.communication}));
  TRY_ASSIGN(ShardUpdate update,
             ShardUpdate::create({.design = options.design,
                                  .arena = options.arena,
                                  .arrays = {.parameters = options.parameters,
                                             .gradients = options.gradients,
                                             .copies = options.copies,
                                             .states = options.states,
                                             .muon_ranks = options.muon_ranks,
                                             .muon_memory = options.muon_memory},
                                  .optimizer = options.optimizer,
                                  .far = options.far,
                                  .pieces = options.pieces,
                                  .clock = options.clock,
                                  .matrices = parts.matrices},
                                 parts.ops, parts.compute));
  return std::unique_ptr<GradientExchange>(
      new AllReduceExchange(parts, std::move(sink), std::move(update)));
}

Status AllReduceExchange::update(const UpdateRequest& request) {
  kernels::SquareSum* squares = &request.values->squares;
  update_.add_squares(squares);
  TRY(add_up_squares(parts_.norm_groups,
                     {.sum = squares, .device = parts_.compute.device(), .stream = parts_.compute},
                     pending_));
  return update_.apply(request, request.values);
}

Status AllReduceExchange::wait() {
  TRY(sink_.wait());
  TRY(update_.wait());
  return wait_for(pending_);
}

}  // namespace lockstep::parallel
