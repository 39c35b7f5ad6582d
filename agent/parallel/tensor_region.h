#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "agent/comm/communicator.h"
#include "agent/model/param_store.h"
#include "agent/model/tp_region.h"
#include "common/base/result.h"
#include "kernels/device/device.h"

namespace lockstep::parallel {

// The tensor-parallel regions of one rank: its shard is its rank in the group. Operations are
// issued to the stream that computes. One thread.
class TensorRegion final : public model::TpRegion {
 public:
  // Both outlive the region. The group serves memory of the stream's device.
  TensorRegion(comm::Communicator& group, kernels::Stream& stream)
      : group_(group), stream_(stream) {}

  // Called around each wait of the host: before it with true, after it with false.
  void observe_waits(std::function<void(model::Pass pass, bool begins)> observer) {
    observer_ = std::move(observer);
  }
  // Waits for the results of operations that were issued to the stream. Comes before the host waits
  // for the stream. Returns the first error.
  Status wait();

  TensorShard shard() const override { return {group_.rank(), group_.size()}; }
  Status gather_rows(const model::RegionRows& rows, model::Pass pass) override;
  Status sum_rows(const model::RegionRows& rows, model::Pass pass) override;
  Status max(float* values, int64_t count) override;
  Status sum(float* values, int64_t count) override;
  Status gather(kernels::ConstView mine, kernels::View all, int64_t count) override;

 private:
  comm::CommBuffer buffer(const kernels::View& values, int64_t count) const;
  Status run(const comm::Call& call, model::Pass pass);

  comm::Communicator& group_;
  kernels::Stream& stream_;
  std::vector<comm::Work> works_;  // stream-ordered ones, whose results are still to be had
  std::function<void(model::Pass, bool)> observer_;
};

}  // namespace lockstep::parallel
