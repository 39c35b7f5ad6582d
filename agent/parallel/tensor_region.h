#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "agent/comm/communicator.h"
#include "agent/model/param_store.h"
#include "agent/model/tp_region.h"
#include "common/base/result.h"
#include "kernels/device/device.h"

namespace lockstep::parallel {

// The tensor-parallel regions of one rank: its shard is its rank in the group. Operations are
// issued to the stream that computes, except those that are started: they have a stream of their
// own. One thread.
class TensorRegion final : public model::TpRegion {
 public:
  // Both outlive the region. The group serves memory of the stream's device. kUnavailable where the
  // device is not.
  static Result<std::unique_ptr<TensorRegion>> create(comm::Communicator& group,
                                                      kernels::Stream& compute);

  // Called around each wait of the host: before it with true, after it with false.
  void observe_waits(std::function<void(model::Pass pass, bool begins)> observer) {
    observer_ = std::move(observer);
  }
  // Waits for the results of operations that were issued to the stream. Comes before the host waits
  // for the stream. Returns the first error.
  Status wait();

  TensorShard shard() const override { return {group_.rank(), group_.size()}; }
  // Between CPUs of one host, sums are copies and additions by the cores that compute.
  model::Overlap overlap() const override;
  Status gather_rows(const model::RegionRows& rows, model::Pass pass) override;
  Status sum_rows(const model::RegionRows& rows, model::Pass pass) override;
  void start_sum_rows(const model::RegionRows& rows) override;
  Status finish(model::Pass pass) override;
  Status max(float* values, int64_t count) override;
  Status sum(float* values, int64_t count) override;
  Status gather(kernels::ConstView mine, kernels::View all, int64_t count) override;

 private:
  TensorRegion(comm::Communicator& group, kernels::Stream& compute)
      : group_(group), compute_(compute) {}
  comm::CommBuffer buffer(const kernels::View& values, int64_t count) const;
  comm::Call sum_of(const model::RegionRows& rows) const;
  bool is_stream_ordered() const { return group_.device_traits().is_stream_ordered; }
  Status run(const comm::Call& call, model::Pass pass);
  // Later work on the second stream waits for all work issued on the first one so far.
  Status order(const kernels::Stream& first, const kernels::Stream& second);

  comm::Communicator& group_;
  kernels::Stream& compute_;
  kernels::Stream travelling_;  // of operations that are started
  kernels::Event passed_;
  std::vector<comm::Work> started_;  // until finish()
  Status failed_;                    // the first error of a start
  std::vector<comm::Work> works_;    // stream-ordered ones, whose results are still to be had
  std::function<void(model::Pass, bool)> observer_;
};

}  // namespace lockstep::parallel
