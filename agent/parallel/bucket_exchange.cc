#include "agent/parallel/bucket_exchange.h"

namespace lockstep::parallel {

BucketExchange::BucketExchange(const ExchangeOptions& options, const ExchangeParts& parts,
                               GradientBuckets buckets)
    : parts_(parts),
      buckets_(std::move(buckets)),
      parameters_(options.parameters),
      copies_(options.copies),
      casts_(options.casts) {}

Result<GradientBuckets> BucketExchange::make_buckets(const ExchangeOptions& options,
                                                     const ExchangeParts& parts) {
  return GradientBuckets::create({.arena = options.arena,
                                  .bucket_bytes = options.bucket_bytes,
                                  .gradients = options.gradients},
                                 {parts.compute, parts.communication});
}

void BucketExchange::begin_step(const kernels::OpTable& ops) {
  CHECK(works_.empty());
  buckets_.begin_step(ops);
}

Status BucketExchange::ready(int64_t id) {
  TRY_ASSIGN(const Bucket* const complete, buckets_.ready(id));
  return complete == nullptr ? Status() : start(*complete);
}

Status BucketExchange::end_micro_batch() {
  buckets_.end_micro_batch();
  return {};
}

void BucketExchange::refresh_copies(int64_t step) const {
  if (copies_ != nullptr) casts_->make_all(parts_.compute, parameters_, copies_, step);
}

}  // namespace lockstep::parallel
