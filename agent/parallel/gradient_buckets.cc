#include "agent/parallel/gradient_buckets.h"

#include <algorithm>

namespace lockstep::parallel {

Result<GradientBuckets> GradientBuckets::create(const Options& options, const Streams& streams) {
  GradientBuckets buckets(options, streams);
  TRY_ASSIGN(buckets.complete_, kernels::Event::create(streams.compute.device()));
  TRY_ASSIGN(buckets.sent_, kernels::Event::create(streams.compute.device()));
  return buckets;
}

void GradientBuckets::begin_step(const kernels::OpTable& ops) {
  is_final_ = false;
  missing_.assign(buckets_.size(), 0);
  for (const ArenaEntry& entry : arena_.entries) ++missing_[bucket_of(entry.id)];
  ops.fill(streams_.compute, {.out = kernels::View(gradients_), .count = arena_.count});
}

float* GradientBuckets::buffer(int64_t id) const {
  const ArenaEntry* entry = arena_.find(id);
  CHECK(entry != nullptr);
  return gradients_ + entry->offset;
}

// Buckets are in descending order.
size_t GradientBuckets::bucket_of(int64_t id) const {
  const auto bucket = std::partition_point(buckets_.begin(), buckets_.end(),
                                           [id](const Bucket& each) { return each.first_id > id; });
  CHECK(bucket != buckets_.end() && id <= bucket->last_id);
  return static_cast<size_t>(bucket - buckets_.begin());
}

Result<const Bucket*> GradientBuckets::ready(int64_t id) {
  const Bucket* none = nullptr;
  if (!is_final_) return none;
  const size_t bucket = bucket_of(id);
  CHECK(missing_[bucket] > 0);
  if (--missing_[bucket] > 0) return none;
  TRY(complete_.record(streams_.compute.handle()));
  TRY(complete_.make_stream_wait(streams_.communication.handle()));
  return &buckets_[bucket];
}

Status GradientBuckets::join_streams() {
  CHECK(std::ranges::all_of(missing_, [](int64_t count) { return count == 0; }));
  TRY(sent_.record(streams_.communication.handle()));
  return sent_.make_stream_wait(streams_.compute.handle());
}

}  // namespace lockstep::parallel
