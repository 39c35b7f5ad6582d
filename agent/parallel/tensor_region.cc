#include "agent/parallel/tensor_region.h"

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

comm::CommBuffer TensorRegion::buffer(const kernels::View& values, int64_t count) const {
  return {.data = values.data,
          .count = count,
          .type = data_type(values.dtype),
          .device = stream_.device(),
          .stream = stream_.handle()};
}

Status TensorRegion::run(const comm::Call& call, model::Pass pass) {
  if (group_.device_traits().is_stream_ordered) {
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
  if (rows.parts == 1) {
    return run({.kind = comm::Collective::kAllReduce, .buffer = buffer(rows.whole, rows.count)},
               pass);
  }
  comm::CommBuffer values = buffer(rows.whole, rows.count / rows.parts);
  if (!is_within_whole(rows, group_.rank())) {
    values.data = rows.part.data;
    values.input = rows.whole.data;
  }
  return run({.kind = comm::Collective::kReduceScatter, .buffer = values}, pass);
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
