#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "agent/parallel/gradient_exchange.h"

namespace lockstep::parallel {

// An exchange whose gradients are a flat fp32 arena, cut into buckets (buckets.h). Each bucket
// starts on its way as soon as backward has completed it.
class BucketExchange : public GradientExchange {
 public:
  void begin_step(const kernels::OpTable& ops) override;
  void enable_reduction() override;
  float* buffer(int64_t id) override;
  Status ready(int64_t id) override;
  Status end_micro_batch() override;
  const std::vector<Bucket>& buckets() const override { return buckets_; }

 protected:
  BucketExchange(const ExchangeOptions& options, const ExchangeParts& parts);
  Status make_events();

  // Starts to send the bucket. Work issued on the communication stream comes after the bucket's
  // gradients.
  virtual Status start(const Bucket& bucket) = 0;
  // Orders later work on the computing stream after all that was issued on the communication
  // stream.
  Status join_streams();
  // Waits for all works; returns the first error.
  Status wait_for_works();
  // Makes the copies for products, if there are any.
  void refresh_copies(int64_t step) const;

  const ExchangeParts& parts() const { return parts_; }
  const ParameterArena& arena() const { return arena_; }
  float* gradients() const { return gradients_; }
  float* parameters() const { return parameters_; }
  bool is_first() const { return parts_.group.rank() == 0; }
  void keep(comm::Work work) { works_.push_back(std::move(work)); }

 private:
  ExchangeParts parts_;
  ParameterArena arena_;
  float* parameters_;
  float* gradients_;
  std::function<void(int64_t)> refresh_copies_;
  std::vector<Bucket> buckets_;
  kernels::Event complete_;  // the bucket, on the computing stream
  kernels::Event sent_;      // everything, on the communication stream
  bool sending_ = false;
  size_t next_bucket_ = 0;  // that waits for its gradients
  std::vector<comm::Work> works_;
};

}  // namespace lockstep::parallel
