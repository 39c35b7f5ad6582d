#pragma once

#include <utility>
#include <vector>

#include "agent/parallel/gradient_buckets.h"
#include "agent/parallel/gradient_exchange.h"
#include "agent/parallel/works.h"

namespace lockstep::parallel {

// An exchange that sends each bucket of gradients as soon as backward has completed it, and makes
// the copies for products on every rank.
class BucketExchange : public GradientExchange {
 public:
  void begin_step(const kernels::OpTable& ops) override;
  void enable_reduction() override { buckets_.enable_reduction(); }
  float* buffer(int64_t id) override { return buckets_.buffer(id); }
  Status ready(int64_t id) override;
  Status end_micro_batch() override;
  const std::vector<Bucket>& buckets() const override { return buckets_.all(); }

 protected:
  BucketExchange(const ExchangeOptions& options, const ExchangeParts& parts,
                 GradientBuckets buckets);
  static Result<GradientBuckets> make_buckets(const ExchangeOptions& options,
                                              const ExchangeParts& parts);

  // Starts to send the bucket. Work issued on the communication stream comes after the bucket's
  // gradients.
  virtual Status start(const Bucket& bucket) = 0;
  Status join_streams() { return buckets_.join_streams(); }
  // Waits for all works; returns the first error.
  Status wait_for_works() { return wait_for(works_); }
  // Makes the copies for products, if there are any.
  void refresh_copies(int64_t step) const;

  const ExchangeParts& parts() const { return parts_; }
  const ParameterArena& arena() const { return buckets_.arena(); }
  float* gradients() const { return buckets_.gradients(); }
  float* parameters() const { return parameters_; }
  bool is_first() const { return parts_.group.rank() == 0; }
  void keep(comm::Work work) { works_.push_back(std::move(work)); }

 private:
  ExchangeParts parts_;
  GradientBuckets buckets_;
  float* parameters_;
  kernels::Bf16* copies_;
  const ParameterCasts* casts_;
  std::vector<comm::Work> works_;
};

}  // namespace lockstep::parallel
