#include "agent/parallel/bucketed_sink.h"

namespace lockstep::parallel {

BucketedSink::BucketedSink(const Options& options, comm::Communicator& group,
                           const kernels::OpTable& ops, const Streams& streams)
    : group_(&group),
      streams_(streams),
      arena_(options.arena),
      buckets_(make_buckets(options.arena, options.bucket_bytes)),
      gradients_(options.gradients),
      travelling_(options.travelling),
      ops_(&ops) {
  works_.reserve(buckets_.size());
}

Result<BucketedSink> BucketedSink::create(const Options& options, comm::Communicator& group,
                                          const kernels::OpTable& ops, const Streams& streams) {
  BucketedSink sink(options, group, ops, streams);
  TRY_ASSIGN(sink.complete_, kernels::Event::create(streams.compute->device()));
  TRY_ASSIGN(sink.reduced_, kernels::Event::create(streams.compute->device()));
  return sink;
}

void BucketedSink::begin_step(const kernels::OpTable& ops) {
  CHECK(works_.empty());
  sending_ = false;
  next_bucket_ = 0;
  ops.fill(*streams_.compute, {.out = kernels::View(gradients()), .count = arena_.count});
}

void BucketedSink::enable_reduction() {
  sending_ = true;
}

float* BucketedSink::buffer(int64_t id) {
  const ArenaEntry* entry = arena_.find(id);
  CHECK(entry != nullptr);
  return gradients() + entry->offset;
}

// Ids come in descending order, so a bucket is complete when its lowest one is.
Status BucketedSink::ready(int64_t id) {
  if (!sending_ || group_->size() == 1) return {};
  CHECK(next_bucket_ < buckets_.size());
  const Bucket& bucket = buckets_[next_bucket_];
  CHECK(id >= bucket.first_id && id <= bucket.last_id);
  if (id != bucket.first_id) return {};
  ++next_bucket_;
  TRY(complete_.record(streams_.compute->handle()));
  TRY(complete_.make_stream_wait(streams_.communication->handle()));
  comm::CommBuffer values{.data = gradients() + bucket.offset,
                          .count = bucket.count,
                          .type = comm::DataType::kF32,
                          .device = streams_.communication->device(),
                          .stream = streams_.communication->handle()};
  if (travelling_ != nullptr) {
    values.data = travelling_ + bucket.offset;
    values.type = comm::DataType::kBf16;
    ops_->cast(*streams_.communication, {.x = kernels::ConstView(gradients() + bucket.offset),
                                         .out = kernels::View(travelling_ + bucket.offset),
                                         .count = bucket.count});
  }
  works_.push_back(group_->start_all_reduce(values, comm::ReduceOp::kSum));
  return {};
}

Status BucketedSink::end_micro_batch() {
  CHECK(!sending_ || group_->size() == 1 || next_bucket_ == buckets_.size());
  return {};
}

Status BucketedSink::finish() {
  if (works_.empty()) return {};
  const bool is_stream_ordered = group_->device_traits().is_stream_ordered;
  if (!is_stream_ordered) TRY(wait());
  land();
  TRY(reduced_.record(streams_.communication->handle()));
  return reduced_.make_stream_wait(streams_.compute->handle());
}

void BucketedSink::land() {
  if (travelling_ == nullptr) return;
  ops_->cast(*streams_.communication, {.x = kernels::ConstView(travelling_),
                                       .out = kernels::View(gradients()),
                                       .count = arena_.count});
}

Status BucketedSink::wait() {
  Status first;
  for (comm::Work& work : works_) {
    Status status = work.wait();
    if (first.ok() && !status.ok()) first = std::move(status);
  }
  works_.clear();
  return first;
}

}  // namespace lockstep::parallel
