#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "agent/comm/communicator.h"
#include "agent/model/batch_sums.h"
#include "common/base/result.h"
#include "kernels/device/device.h"

namespace lockstep::parallel {

// The sums over a micro-batch that data-parallel ranks share. Operations are issued to the stream
// that computes. One thread.
class SharedBatch final : public model::BatchSums {
 public:
  // The stream outlives it. The group serves memory of the stream's device, and nothing else uses
  // it.
  SharedBatch(std::unique_ptr<comm::Communicator> group, kernels::Stream& compute)
      : group_(std::move(group)), compute_(compute) {}

  // Called around each wait of the host: before it with true, after it with false.
  void observe_waits(std::function<void(model::Pass pass, bool begins)> observer) {
    observer_ = std::move(observer);
  }
  // Waits for the results of operations that were issued to the stream. Comes before the host waits
  // for the stream. Returns the first error.
  Status wait();

  Status add_up(double* values, int64_t count, model::Pass pass) override;

 private:
  std::unique_ptr<comm::Communicator> group_;
  kernels::Stream& compute_;
  std::vector<comm::Work> works_;  // stream-ordered ones, whose results are still to be had
  std::function<void(model::Pass, bool)> observer_;
};

}  // namespace lockstep::parallel
