#include "agent/parallel/bucket_exchange.h"

namespace lockstep::parallel {

BucketExchange::BucketExchange(const ExchangeOptions& options, const ExchangeParts& parts)
    : parts_(parts),
      arena_(options.arena),
      parameters_(options.parameters),
      gradients_(options.gradients),
      refresh_copies_(options.refresh_copies),
      buckets_(make_buckets(options.arena, options.bucket_bytes)) {}

Status BucketExchange::make_events() {
  TRY_ASSIGN(complete_, kernels::Event::create(parts_.compute.device()));
  TRY_ASSIGN(sent_, kernels::Event::create(parts_.compute.device()));
  return {};
}

void BucketExchange::begin_step(const kernels::OpTable& ops) {
  CHECK(works_.empty());
  sending_ = false;
  next_bucket_ = 0;
  ops.fill(parts_.compute, {.out = kernels::View(gradients()), .count = arena_.count});
}

void BucketExchange::enable_reduction() {
  sending_ = true;
}

float* BucketExchange::buffer(int64_t id) {
  const ArenaEntry* entry = arena_.find(id);
  CHECK(entry != nullptr);
  return gradients() + entry->offset;
}

// Ids come in descending order, so a bucket is complete when its lowest one is.
Status BucketExchange::ready(int64_t id) {
  if (!sending_) return {};
  CHECK(next_bucket_ < buckets_.size());
  const Bucket& bucket = buckets_[next_bucket_];
  CHECK(id >= bucket.first_id && id <= bucket.last_id);
  if (id != bucket.first_id) return {};
  ++next_bucket_;
  TRY(complete_.record(parts_.compute.handle()));
  TRY(complete_.make_stream_wait(parts_.communication.handle()));
  return start(bucket);
}

Status BucketExchange::end_micro_batch() {
  CHECK(!sending_ || next_bucket_ == buckets_.size());
  return {};
}

Status BucketExchange::join_streams() {
  TRY(sent_.record(parts_.communication.handle()));
  return sent_.make_stream_wait(parts_.compute.handle());
}

Status BucketExchange::wait_for_works() {
  Status first;
  for (comm::Work& work : works_) {
    Status status = work.wait();
    if (first.ok() && !status.ok()) first = std::move(status);
  }
  works_.clear();
  return first;
}

void BucketExchange::refresh_copies(int64_t step) const {
  if (refresh_copies_) refresh_copies_(step);
}

}  // namespace lockstep::parallel
