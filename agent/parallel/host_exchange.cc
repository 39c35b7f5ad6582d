#include "agent/parallel/host_exchange.h"

#include <array>
#include <utility>

#include "agent/parallel/exchange_memory.h"
#include "agent/parallel/world_totals.h"

namespace lockstep::parallel {

HostExchange::HostExchange(const ExchangeOptions& options, const ExchangeParts& parts,
                           GradientBuckets buckets, SharedSegment segment)
    : BucketExchange(options, parts, std::move(buckets)),
      range_(options.range),
      first_gradients_(1 + optim::state_kinds(options.optimizer).size()),
      segment_(std::move(segment)) {}

Result<std::unique_ptr<GradientExchange>> HostExchange::create(const ExchangeOptions& options,
                                                               const ExchangeParts& parts) {
  TRY_ASSIGN(
      SharedSegment segment,
      SharedSegment::map(parts.group, options.shared,
                         host_segment_bytes(options.arena, options.optimizer, parts.group.size())));
  TRY_ASSIGN(GradientBuckets buckets, make_buckets(options, parts));
  std::unique_ptr<HostExchange> exchange(
      new HostExchange(options, parts, std::move(buckets), std::move(segment)));
  TRY_ASSIGN(exchange->pin_,
             kernels::HostPin::lock(parts.compute.device(), exchange->segment_.memory(),
                                    "memory that the ranks share"));
  TRY(exchange->make_update(options));
  return std::unique_ptr<GradientExchange>(std::move(exchange));
}

Status HostExchange::make_update(const ExchangeOptions& options) {
  std::array<float*, optim::kStatesMax> states{};
  for (size_t i = 0; 1 + i < first_gradients_; ++i) states[i] = block(1 + i);
  TRY_ASSIGN(update_, ShardUpdate::create({.design = options.design,
                                           .arena = options.arena,
                                           .arrays = {.parameters = block(0),
                                                      .gradients = gradients_of(0),
                                                      .states = states,
                                                      .slices = {{.offset = range_.begin,
                                                                  .local = range_.begin,
                                                                  .count = range_.count()}}},
                                           .optimizer = options.optimizer},
                                          kernels::cpu_ops(), host_));
  return {};
}

float* HostExchange::block(size_t index) const {
  return reinterpret_cast<float*>(segment_.memory().data) +
         index * static_cast<size_t>(arena().count);
}

float* HostExchange::gradients_of(int rank) const {
  return block(first_gradients_ + static_cast<size_t>(rank));
}

// The copy has ended when finish() returns, and other ranks read this range only after barriers of
// the next step.
Status HostExchange::parameters_written(int64_t) {
  has_parameters_ = true;
  return kernels::copy_bytes(parts().compute, {.to = block(0) + range_.begin,
                                               .from = parameters() + range_.begin,
                                               .bytes = float_bytes(range_.count())});
}

Status HostExchange::start(const Bucket& bucket) {
  const size_t bytes = float_bytes(bucket.count);
  traffic_.bytes_written += bytes;
  return kernels::copy_bytes(parts().communication,
                             {.to = gradients_of(parts().group.rank()) + bucket.offset,
                              .from = gradients() + bucket.offset,
                              .bytes = bytes});
}

// Copies of the last step's parameters, on the computing stream, have ended too: the copies of
// gradients come after them.
Status HostExchange::finish() {
  TRY(parts().communication.synchronize());
  return parts().group.barrier();
}

Status HostExchange::update(const UpdateRequest& request) {
  CHECK(has_parameters_);
  add_up();
  TRY(add_squares());
  TRY(update_->apply(request, &values_));
  TRY(parts().group.barrier());
  kernels::Stream& stream = parts().compute;
  const size_t bytes = float_bytes(arena().count);
  TRY(kernels::copy_bytes(stream, {.to = parameters(), .from = block(0), .bytes = bytes}));
  traffic_.bytes_read += bytes;
  TRY(kernels::copy_bytes(stream, {.to = &request.values->squares,
                                   .from = &values_.squares,
                                   .bytes = sizeof(values_.squares)}));
  refresh_copies(request.step);
  return {};
}

void HostExchange::add_up() {
  float* const sum = gradients_of(0) + range_.begin;
  for (int rank = 1; rank < parts().group.size(); ++rank) {
    kernels::cpu_ops().add(host_, {.a = kernels::ConstView(sum),
                                   .b = kernels::ConstView(gradients_of(rank) + range_.begin),
                                   .out = kernels::View(sum),
                                   .count = range_.count()});
  }
}

Status HostExchange::add_squares() {
  values_ = {};
  update_->add_squares(&values_.squares);
  TRY(parts().group.all_reduce(
      {.data = &values_.squares, .count = kernels::kSquareWords, .type = comm::DataType::kI64},
      comm::ReduceOp::kSum));
  std::vector<comm::Work> pending;  // nothing: a host has no streams
  return add_up_squares(parts().norm_groups,
                        {.sum = &values_.squares, .device = host_.device(), .stream = host_},
                        pending);
}

}  // namespace lockstep::parallel
