#include "agent/parallel/first_rank_exchange.h"

#include <utility>
#include <vector>

#include "agent/parallel/world_totals.h"

namespace lockstep::parallel {
namespace {

comm::CommBuffer buffer_on(const kernels::Stream& stream, void* data, int64_t count,
                           comm::DataType type) {
  comm::CommBuffer buffer{.data = data, .count = count, .type = type};
  buffer.device = stream.device();
  buffer.stream = stream.handle();
  return buffer;
}

}  // namespace

FirstRankExchange::FirstRankExchange(const ExchangeOptions& options, const ExchangeParts& parts,
                                     GradientBuckets buckets)
    : BucketExchange(options, parts, std::move(buckets)), staging_(options.staging) {}

Result<std::unique_ptr<GradientExchange>> FirstRankExchange::create(const ExchangeOptions& options,
                                                                    const ExchangeParts& parts) {
  TRY_ASSIGN(GradientBuckets buckets, make_buckets(options, parts));
  std::unique_ptr<FirstRankExchange> exchange(
      new FirstRankExchange(options, parts, std::move(buckets)));
  if (exchange->is_first()) {
    TRY_ASSIGN(exchange->update_, ShardUpdate::create({.design = options.design,
                                                       .arena = options.arena,
                                                       .arrays = {.parameters = options.parameters,
                                                                  .gradients = options.gradients,
                                                                  .states = options.states},
                                                       .optimizer = options.optimizer},
                                                      parts.ops, parts.compute));
  }
  return std::unique_ptr<GradientExchange>(std::move(exchange));
}

// NCCL has no algorithm by name, so the first rank adds in the order of the stream there. Elsewhere
// the communicator adds what arrives, in the same order, and needs no memory for it.
Status FirstRankExchange::start(const Bucket& bucket) {
  if (parts().group.size() == 1) return {};
  const comm::CommBuffer own = buffer_on(parts().communication, gradients() + bucket.offset,
                                         bucket.count, comm::DataType::kF32);
  if (!is_stream_ordered()) {
    keep(parts().group.start_reduce(own, comm::ReduceOp::kSum, 0,
                                    {.algorithm = comm::Algorithm::kOneRoot}));
  } else if (is_first()) {
    add_in_turn(own);
  } else {
    keep(parts().group.start_send(own, 0));
  }
  return {};
}

// Each rank's gradients are added before those of the next one take their place.
void FirstRankExchange::add_in_turn(const comm::CommBuffer& own) {
  comm::CommBuffer arriving = own;
  arriving.data = staging_;
  const kernels::View sum(static_cast<float*>(own.data));
  for (int rank = 1; rank < parts().group.size(); ++rank) {
    keep(parts().group.start_receive(arriving, rank));
    parts().ops.add(parts().communication,
                    {.a = sum, .b = kernels::View(staging_), .out = sum, .count = own.count});
  }
}

Status FirstRankExchange::finish() {
  if (!is_stream_ordered()) return wait_for_works();
  return join_streams();
}

Status FirstRankExchange::update(const UpdateRequest& request) {
  kernels::Stream& stream = parts().compute;
  kernels::SquareSum* squares = &request.values->squares;
  if (is_first()) {
    update_->add_squares(squares);
    TRY(add_up_squares(parts().norm_groups,
                       {.sum = squares, .device = stream.device(), .stream = stream}, pending_));
    TRY(update_->apply(request, request.values));
  }
  TRY(distribute(buffer_on(stream, parameters(), arena().count, comm::DataType::kF32)));
  TRY(distribute(buffer_on(stream, squares, kernels::kSquareWords, comm::DataType::kI64)));
  refresh_copies(request.step);
  return {};
}

// NCCL's broadcast is a chain or a tree, as it chooses, so messages take its place there.
Status FirstRankExchange::distribute(const comm::CommBuffer& values) {
  comm::Communicator& group = parts().group;
  if (group.size() == 1) return {};
  if (!is_stream_ordered()) {
    return group.broadcast(values, 0, {.algorithm = comm::Algorithm::kOneRoot});
  }
  if (!is_first()) {
    keep(group.start_receive(values, 0));
    return {};
  }
  std::vector<comm::Call> calls;
  for (int rank = 1; rank < group.size(); ++rank) {
    calls.push_back({.kind = comm::Collective::kSend, .buffer = values, .rank = rank});
  }
  keep(group.start(calls));
  return {};
}

// The communication stream ends with additions, whose errors it reports.
Status FirstRankExchange::wait() {
  TRY(wait_for(pending_));
  TRY(wait_for_works());
  return parts().communication.synchronize();
}

std::span<const optim::OptimizerState> FirstRankExchange::states() const {
  if (!update_) return {};
  return update_->states();
}

}  // namespace lockstep::parallel
