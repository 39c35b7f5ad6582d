#include "tests/support/emulated_cuda/devices.h"

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::emulated_cuda {

namespace {

struct Devices {
  std::mutex mutex;
  std::vector<std::unique_ptr<EmulatedDevice>> all;
  uint64_t seed = 1;

  Devices() { all.push_back(std::make_unique<EmulatedDevice>(0, seed)); }
};

// Never destroyed: objects destroyed late still free their memory here.
Devices& devices() {
  static Devices* const all = std::make_unique<Devices>().release();
  return *all;
}

EmulatedDevice* device_of(void* handle) {
  const Result<EmulatedDevice*> device = device_at(index_of_handle(handle));
  return device.ok() && handle != nullptr ? *device : nullptr;
}

Error no_stream() {
  return invalid("[emulated cuda] expected a device's stream, got none");
}

}  // namespace

int device_count() {
  const std::lock_guard lock(devices().mutex);
  return static_cast<int>(devices().all.size());
}

Result<EmulatedDevice*> device_at(int index) {
  Devices& devices = emulated_cuda::devices();
  const std::lock_guard lock(devices.mutex);
  const auto count = static_cast<int>(devices.all.size());
  if (index >= 0 && index < count) return devices.all[static_cast<size_t>(index)].get();
  return not_found("[emulated cuda] expected a device index below " + std::to_string(count) +
                   ", got " + std::to_string(index));
}

void set_device_count(int count) {
  Devices& devices = emulated_cuda::devices();
  const std::lock_guard lock(devices.mutex);
  while (static_cast<int>(devices.all.size()) < count) {
    const auto index = static_cast<int>(devices.all.size());
    devices.all.push_back(std::make_unique<EmulatedDevice>(index, devices.seed));
  }
}

void set_seed(uint64_t seed) {
  Devices& devices = emulated_cuda::devices();
  const std::lock_guard lock(devices.mutex);
  devices.seed = seed;
  for (const auto& device : devices.all) device->set_seed(seed);
}

void reset_devices() {
  Devices& devices = emulated_cuda::devices();
  const std::lock_guard lock(devices.mutex);
  for (const auto& device : devices.all) device->reset();
}

Status issue(void* stream, Work work) {
  EmulatedDevice* device = device_of(stream);
  return device == nullptr ? Status(no_stream()) : device->issue(stream, std::move(work));
}

Status run(void* stream, Work work) {
  EmulatedDevice* device = device_of(stream);
  if (device == nullptr || !device->has(stream)) return work(0);
  TRY(device->issue(stream, std::move(work)));
  return device->synchronize(stream);
}

Status issue_blocking(void* stream, std::function<void()> work) {
  EmulatedDevice* device = device_of(stream);
  return device == nullptr ? Status(no_stream()) : device->issue_blocking(stream, std::move(work));
}

}  // namespace lockstep::emulated_cuda
