#include "agent/parallel/tensor_region.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "agent/parallel/works.h"

namespace lockstep::parallel {
namespace {

comm::DataType data_type(kernels::DType dtype) {
  return dtype == kernels::DType::kBf16 ? comm::DataType::kBf16 : comm::DataType::kF32;
}

bool is_within_whole(const model::RegionRows& rows, int shard) {
  const auto element = static_cast<int64_t>(kernels::dtype_bytes(rows.whole.dtype));
  const int64_t offset = rows.count / rows.parts * shard * element;
  return rows.part.data == static_cast<std::byte*>(rows.whole.data) + offset;
}

}  // namespace

Result<std::unique_ptr<TensorRegion>> TensorRegion::create(comm::Communicator& group,
                                                           kernels::Stream& compute) {
  std::unique_ptr<TensorRegion> region(new TensorRegion(group, compute));
  TRY_ASSIGN(region->travelling_, kernels::Stream::create(compute.device()));
  TRY_ASSIGN(region->passed_, kernels::Event::create(compute.device()));
  return region;
}

model::Overlap TensorRegion::overlap() const {
  if (compute_.device().type != kernels::DeviceType::kCpu) return model::Overlap::kWeights;
  return group_.hosts().hosts() > 1 ? model::Overlap::kChunks : model::Overlap::kNone;
}

comm::CommBuffer TensorRegion::buffer(const kernels::View& values, int64_t count) const {
  return {.data = values.data,
          .count = count,
          .type = data_type(values.dtype),
          .device = compute_.device(),
          .stream = compute_.handle()};
}

comm::Call TensorRegion::sum_of(const model::RegionRows& rows) const {
  if (rows.parts == 1) {
    return {.kind = comm::Collective::kAllReduce, .buffer = buffer(rows.whole, rows.count)};
  }
  comm::CommBuffer values = buffer(rows.whole, rows.count / rows.parts);
  if (!is_within_whole(rows, group_.rank())) {
    values.data = rows.part.data;
    values.input = rows.whole.data;
  }
  return {.kind = comm::Collective::kReduceScatter, .buffer = values};
}

Status TensorRegion::run(const comm::Call& call, model::Pass pass) {
  if (is_stream_ordered()) {
    works_.push_back(group_.start(call));
    return {};
  }
  if (observer_) observer_(pass, true);
  const Status status = group_.run(call);
  if (observer_) observer_(pass, false);
  return status;
}

Status TensorRegion::gather_rows(const model::RegionRows& rows, model::Pass pass) {
  if (rows.parts == 1) return {};
  comm::CommBuffer values = buffer(rows.whole, rows.count / rows.parts);
  values.input = rows.part.data;
  return run({.kind = comm::Collective::kAllGather, .buffer = values}, pass);
}

Status TensorRegion::sum_rows(const model::RegionRows& rows, model::Pass pass) {
  return run(sum_of(rows), pass);
}

Status TensorRegion::order(const kernels::Stream& first, const kernels::Stream& second) {
  TRY(passed_.record(first.handle()));
  return passed_.make_stream_wait(second.handle());
}

void TensorRegion::start_sum_rows(const model::RegionRows& rows) {
  if (failed_.ok()) failed_ = order(compute_, travelling_);
  if (!failed_.ok()) return;
  comm::Call call = sum_of(rows);
  call.buffer.stream = travelling_.handle();
  started_.push_back(group_.start(call));
}

Status TensorRegion::finish(model::Pass pass) {
  Status first = std::exchange(failed_, {});
  if (started_.empty()) return first;
  if (is_stream_ordered()) {
    std::ranges::move(started_, std::back_inserter(works_));
    started_.clear();
    Status joined = order(travelling_, compute_);
    return first.ok() ? joined : first;
  }
  if (observer_) observer_(pass, true);
  Status waited = wait_for(started_);
  if (observer_) observer_(pass, false);
  return first.ok() ? waited : first;
}

Status TensorRegion::max(float* values, int64_t count) {
  return run({.kind = comm::Collective::kAllReduce,
              .buffer = buffer(kernels::View(values), count),
              .op = comm::ReduceOp::kMax},
             model::Pass::kForward);
}

Status TensorRegion::sum(float* values, int64_t count) {
  return run({.kind = comm::Collective::kAllReduce, .buffer = buffer(kernels::View(values), count)},
             model::Pass::kForward);
}

Status TensorRegion::gather(kernels::ConstView mine, kernels::View all, int64_t count) {
  comm::CommBuffer values = buffer(all, count);
  values.input = mine.data;
  return run({.kind = comm::Collective::kAllGather, .buffer = values}, model::Pass::kForward);
}

Status TensorRegion::wait() {
  return wait_for(works_);
}

}  // namespace lockstep::parallel
