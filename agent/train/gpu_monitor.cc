#include "agent/train/gpu_monitor.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/log.h"

namespace lockstep::train {
namespace {

// As much of the text as fits, with a 0 behind it.
template <size_t Size>
void copy_text(const std::string& from, std::array<char, Size>& to) {
  to.fill(0);
  std::copy_n(from.begin(), std::min(from.size(), Size - 1), to.begin());
}

template <class T>
double number_or_nan(const std::optional<T>& value) {
  return value ? static_cast<double>(*value) : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

GpuMonitor::GpuMonitor(Options options, GpuBoard board)
    : options_(std::move(options)), board_(board) {
  copy_text(options_.gpu.name, numbers_.name);
  copy_text(options_.gpu.bus, numbers_.bus);
  numbers_.uuid = options_.gpu.uuid;
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

GpuMonitor::~GpuMonitor() {
  thread_.request_stop();
  thread_.join();
}

void GpuMonitor::run(const std::stop_token& stop) {
  const Result<std::unique_ptr<kernels::Nvml>> nvml = options_.load();
  if (!nvml.ok()) {
    log_info("GPU usage is not available", {{"reason", nvml.error().message}});
    return;
  }
  if (const Status watched = (*nvml)->watch_xids(options_.gpu.bus); !watched.ok()) {
    log_info("GPU Xid errors are not available", {{"reason", watched.error().message}});
  }
  std::unique_lock lock(mutex_);
  do {
    look(**nvml);
    wakened_.wait_for(lock, stop, options_.interval, [] { return false; });
  } while (!stop.stop_requested());
  look(**nvml);
}

// A GPU that is lost says nothing any more, but may still have told its Xid.
void GpuMonitor::look(kernels::Nvml& nvml) {
  for (const kernels::Xid& xid : nvml.new_xids()) {
    count_xid(numbers_, xid.number);
    log_error("the GPU reports an error", {{"gpu", xid.bus},
                                           {"name", options_.gpu.name},
                                           {"xid", xid.number},
                                           {"meaning", xid_meaning(xid.number)}});
  }
  const Result<kernels::GpuSample> sample = nvml.sample(options_.gpu.bus);
  if (!sample.ok() && !std::exchange(has_complained_, true)) {
    log_warning("the GPU does not report its usage",
                {{"gpu", options_.gpu.bus}, {"reason", sample.error().message}});
  }
  const kernels::GpuSample seen = sample.ok() ? *sample : kernels::GpuSample{};
  numbers_.busy_ratio = number_or_nan(seen.busy_percent) / 100;
  numbers_.memory_used_bytes = number_or_nan(seen.memory_used_bytes);
  numbers_.memory_size_bytes = number_or_nan(seen.memory_total_bytes);
  numbers_.power_watts = number_or_nan(seen.power_watts);
  ++numbers_.samples;
  board_.write(numbers_);
}

}  // namespace lockstep::train
