#include "agent/parallel/bucketed_sink.h"

#include "agent/parallel/works.h"

namespace lockstep::parallel {

Result<BucketedSink> BucketedSink::create(const Options& options, comm::Communicator& group,
                                          const kernels::OpTable& ops,
                                          const GradientBuckets::Streams& streams) {
  TRY_ASSIGN(GradientBuckets buckets, GradientBuckets::create(options.buckets, streams));
  BucketedSink sink(std::move(buckets), options.travelling, group, ops, streams.communication);
  sink.works_.reserve(sink.buckets().size());
  return sink;
}

void BucketedSink::begin_step(const kernels::OpTable& ops) {
  CHECK(works_.empty());
  buckets_.begin_step(ops);
}

Status BucketedSink::ready(int64_t id) {
  if (group_->size() == 1) return {};
  TRY_ASSIGN(const Bucket* const complete, buckets_.ready(id));
  if (complete != nullptr) start(*complete);
  return {};
}

void BucketedSink::start(const Bucket& bucket) {
  float* const gradients = buckets_.gradients() + bucket.offset;
  comm::CommBuffer values{.data = gradients,
                          .count = bucket.count,
                          .type = comm::DataType::kF32,
                          .device = communication_->device(),
                          .stream = communication_->handle()};
  if (travelling_ != nullptr) {
    values.data = travelling_ + bucket.offset;
    values.type = comm::DataType::kBf16;
    ops_->cast(*communication_, {.x = kernels::ConstView(gradients),
                                 .out = kernels::View(travelling_ + bucket.offset),
                                 .count = bucket.count});
  }
  works_.push_back(group_->start_all_reduce(values, comm::ReduceOp::kSum));
}

Status BucketedSink::end_micro_batch() {
  buckets_.end_micro_batch();
  return {};
}

Status BucketedSink::finish() {
  if (works_.empty()) return {};
  const bool is_stream_ordered = group_->device_traits().is_stream_ordered;
  if (!is_stream_ordered) TRY(wait());
  land();
  return buckets_.join_streams();
}

void BucketedSink::land() {
  if (travelling_ == nullptr) return;
  ops_->cast(*communication_, {.x = kernels::ConstView(travelling_),
                               .out = kernels::View(buckets_.gradients()),
                               .count = buckets_.arena().count});
}

Status BucketedSink::wait() {
  return wait_for(works_);
}

}  // namespace lockstep::parallel
