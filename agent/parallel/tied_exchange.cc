#include "agent/parallel/tied_exchange.h"

#include "agent/parallel/works.h"

namespace lockstep::parallel {

Status TiedExchange::finish() {
  TRY(inner().finish());
  for (const Gradients& part : options_.gradients) {
    comm::Work work = options_.pair->start_all_reduce({.data = part.values,
                                                       .count = part.count,
                                                       .type = comm::DataType::kF32,
                                                       .device = compute_.device(),
                                                       .stream = compute_.handle()},
                                                      comm::ReduceOp::kSum);
    if (options_.pair->device_traits().is_stream_ordered) {
      pending_.push_back(std::move(work));
    } else {
      TRY(work.wait());
    }
  }
  return {};
}

Status TiedExchange::wait() {
  TRY(inner().wait());
  return wait_for(pending_);
}

}  // namespace lockstep::parallel
