#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "agent/comm/communicator.h"
#include "agent/parallel/gradient_exchange.h"

namespace lockstep::parallel {

// Another exchange, on a stage that holds a tied embedding together with a second stage: the
// gradients of the first stage's lookups and of the last stage's head are added up, after each has
// summed its own over micro-batches and data-parallel ranks. Both stages then make the same update.
class TiedExchange final : public GradientExchange {
 public:
  // A part of the embedding's gradients on this rank.
  struct Gradients {
    float* values = nullptr;
    int64_t count = 0;
  };
  struct Options {
    std::unique_ptr<GradientExchange> inner;
    std::unique_ptr<comm::Communicator> pair;  // of the two stages, for this exchange alone
    std::vector<Gradients> gradients;          // the same elements on both
  };
  // `compute`: as ExchangeParts.
  TiedExchange(Options options, kernels::Stream& compute)
      : options_(std::move(options)), compute_(compute) {}

  void expect_update(const UpdateRequest& request) override { inner().expect_update(request); }
  void begin_step(const kernels::OpTable& ops) override { inner().begin_step(ops); }
  void enable_reduction() override { inner().enable_reduction(); }
  float* buffer(int64_t id) override { return inner().buffer(id); }
  Status ready(int64_t id) override { return inner().ready(id); }
  Status end_micro_batch() override { return inner().end_micro_batch(); }
  Status finish() override;
  Status parameters_written(int64_t step) override { return inner().parameters_written(step); }
  Status update(const UpdateRequest& request) override { return inner().update(request); }
  Status wait() override;

  std::span<const optim::OptimizerState> states() const override {
    return options_.inner->states();
  }
  const std::vector<Bucket>& buckets() const override { return options_.inner->buckets(); }
  OffloadCounts offload_counts() const override { return options_.inner->offload_counts(); }
  SharedTraffic shared_traffic() const override { return options_.inner->shared_traffic(); }

 private:
  GradientExchange& inner() { return *options_.inner; }

  Options options_;
  kernels::Stream& compute_;
  std::vector<comm::Work> pending_;
};

}  // namespace lockstep::parallel
