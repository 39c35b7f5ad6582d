#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "common/api/progress_page.h"
#include "common/base/clock.h"
#include "common/base/result.h"
#include "kernels/device/device.h"
#include "kernels/device/nvml.h"

namespace lockstep::train {

// Looks at this rank's GPU on a thread of its own, once an interval, and writes what it says on the
// progress page: nothing of it is on the way of a step. An Xid error is logged when it is seen.
// Where NVML is not, that is logged once and nothing is written; what the GPU doesn't say is NaN.
class GpuMonitor {
 public:
  using Load = std::function<Result<std::unique_ptr<kernels::Nvml>>()>;
  struct Options {
    kernels::DeviceInfo gpu;
    Duration interval = std::chrono::seconds(1);
    Load load = kernels::Nvml::load;
  };

  // The page outlives it.
  GpuMonitor(Options options, GpuBoard board);
  // Takes a last look, so that an Xid which ended the rank is told.
  ~GpuMonitor();
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;

 private:
  void run(const std::stop_token& stop);
  void look(kernels::Nvml& nvml);

  Options options_;
  GpuBoard board_;
  GpuNumbers numbers_;
  bool has_complained_ = false;
  std::mutex mutex_;
  std::condition_variable_any wakened_;
  std::jthread thread_;
};

}  // namespace lockstep::train
