#include "agent/parallel/bucketed_sink.h"

namespace lockstep::parallel {

BucketedSink::BucketedSink(const Options& options, comm::Communicator& group,
                           const Streams& streams)
    : group_(&group),
      streams_(streams),
      arena_(options.arena),
      buckets_(make_buckets(options.arena, options.bucket_bytes)),
      gradients_(options.gradients) {
  works_.reserve(buckets_.size());
}

Result<BucketedSink> BucketedSink::create(const Options& options, comm::Communicator& group,
                                          const Streams& streams) {
  BucketedSink sink(options, group, streams);
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
  works_.push_back(group_->start_all_reduce({.data = gradients() + bucket.offset,
                                             .count = bucket.count,
                                             .type = comm::DataType::kF32,
                                             .device = streams_.communication->device(),
                                             .stream = streams_.communication->handle()},
                                            comm::ReduceOp::kSum));
  return {};
}

Status BucketedSink::end_micro_batch() {
  CHECK(!sending_ || group_->size() == 1 || next_bucket_ == buckets_.size());
  return {};
}

Status BucketedSink::finish() {
  if (works_.empty()) return {};
  if (!group_->device_traits().is_stream_ordered) return wait();
  TRY(reduced_.record(streams_.communication->handle()));
  return reduced_.make_stream_wait(streams_.compute->handle());
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
