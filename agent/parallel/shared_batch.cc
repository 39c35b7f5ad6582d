#include "agent/parallel/shared_batch.h"

#include "agent/parallel/works.h"

namespace lockstep::parallel {

Status SharedBatch::add_up(double* values, int64_t count, model::Pass pass) {
  const comm::Call call{.kind = comm::Collective::kAllReduce,
                        .buffer = {.data = values,
                                   .count = count,
                                   .type = comm::DataType::kF64,
                                   .device = compute_.device(),
                                   .stream = compute_.handle()}};
  if (group_->device_traits().is_stream_ordered) {
    works_.push_back(group_->start(call));
    return {};
  }
  if (observer_) observer_(pass, true);
  const Status status = group_->run(call);
  if (observer_) observer_(pass, false);
  return status;
}

Status SharedBatch::wait() {
  return wait_for(works_);
}

}  // namespace lockstep::parallel
