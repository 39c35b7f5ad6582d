#include "agent/parallel/bucketed_sink.h"

namespace lockstep {

BucketedSink::BucketedSink(const Options& options, Communicator& group, Stream& stream)
    : group_(&group),
      stream_(&stream),
      arena_(options.arena),
      buckets_(make_buckets(options.arena, options.bucket_bytes)),
      gradients_(options.gradients) {
  works_.reserve(buckets_.size());
}

void BucketedSink::begin_step(const OpTable& ops) {
  CHECK(works_.empty());
  sending_ = false;
  next_bucket_ = 0;
  ops.fill(*stream_, {.out = View(gradients()), .count = arena_.count});
}

void BucketedSink::send_from_now_on() {
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
  works_.push_back(group_->start_all_reduce({.data = gradients() + bucket.offset,
                                             .count = bucket.count,
                                             .type = DataType::kF32,
                                             .device = stream_->device(),
                                             .stream = stream_->handle()},
                                            ReduceOp::kSum));
  return {};
}

Status BucketedSink::end_micro_batch() {
  CHECK(!sending_ || group_->size() == 1 || next_bucket_ == buckets_.size());
  return {};
}

Status BucketedSink::finish() {
  Status first;
  for (Work& work : works_) {
    Status status = work.wait();
    if (first.ok() && !status.ok()) first = std::move(status);
  }
  works_.clear();
  return first;
}

}  // namespace lockstep
