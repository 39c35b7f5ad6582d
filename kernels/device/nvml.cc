#include "kernels/device/nvml.h"

#include <dlfcn.h>

#include "kernels/device/shared_library.h"

namespace lockstep::kernels {
namespace {

constexpr unsigned kLinksMax = 18;  // NVML_NVLINK_MAX_LINKS

Result<NvmlFunctions> find_all(const SharedLibrary& library) {
  NvmlFunctions found;
  TRY(find_function(library, "nvmlInit_v2", found.init));
  TRY(find_function(library, "nvmlShutdown", found.shutdown));
  TRY(find_function(library, "nvmlErrorString", found.error_string));
  TRY(find_function(library, "nvmlDeviceGetHandleByPciBusId_v2", found.device_by_bus));
  TRY(find_function(library, "nvmlDeviceGetNvLinkState", found.link_state));
  TRY(find_function(library, "nvmlDeviceGetUtilizationRates", found.utilisation));
  TRY(find_function(library, "nvmlDeviceGetMemoryInfo", found.memory));
  TRY(find_function(library, "nvmlDeviceGetPowerUsage", found.power));
  TRY(find_function(library, "nvmlEventSetCreate", found.create_events));
  TRY(find_function(library, "nvmlDeviceRegisterEvents", found.register_events));
  TRY(find_function(library, "nvmlEventSetWait_v2", found.wait_event));
  TRY(find_function(library, "nvmlEventSetFree", found.free_events));
  return found;
}

}  // namespace

Result<std::unique_ptr<Nvml>> Nvml::load() {
  // Never unloaded: the library belongs to the driver.
  void* handle = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return unavailable("[nvml] libnvidia-ml.so.1 is not installed on this machine");
  TRY_ASSIGN(const NvmlFunctions functions, find_all({.handle = handle, .name = "nvml"}));
  return with_functions(functions);
}

Result<std::unique_ptr<Nvml>> Nvml::with_functions(const NvmlFunctions& functions) {
  if (const int code = functions.init(); code != 0) {
    return unavailable(std::string("[nvml] nvmlInit_v2 failed: ") + functions.error_string(code));
  }
  return std::unique_ptr<Nvml>(new Nvml(functions));
}

Nvml::~Nvml() {
  if (events_ != nullptr) static_cast<void>(nvml_.free_events(events_));
  static_cast<void>(nvml_.shutdown());
}

Status Nvml::check(const char* call, int code) const {
  if (code == 0) return {};
  return unavailable(std::string("[nvml] ") + call + " failed: " + nvml_.error_string(code));
}

Result<void*> Nvml::device(const std::string& bus) {
  void* device = nullptr;
  TRY(check("nvmlDeviceGetHandleByPciBusId_v2", nvml_.device_by_bus(bus.c_str(), &device)));
  return device;
}

// For a link that the GPU does not have, NVML returns an error, which counts as inactive.
Result<int> Nvml::nvlinks(const std::string& bus) {
  TRY_ASSIGN(void* const handle, device(bus));
  int links = 0;
  for (unsigned link = 0; link < kLinksMax; ++link) {
    unsigned is_active = 0;
    if (nvml_.link_state(handle, link, &is_active) == 0 && is_active != 0) ++links;
  }
  return links;
}

Result<GpuSample> Nvml::sample(const std::string& bus) {
  TRY_ASSIGN(void* const handle, device(bus));
  GpuSample sample;
  NvmlFunctions::Utilisation busy;
  if (nvml_.utilisation(handle, &busy) == 0) sample.busy_percent = static_cast<int>(busy.gpu);
  NvmlFunctions::Memory memory;
  if (nvml_.memory(handle, &memory) == 0) {
    sample.memory_used_bytes = memory.used;
    sample.memory_total_bytes = memory.total;
  }
  unsigned milliwatts = 0;
  if (nvml_.power(handle, &milliwatts) == 0) sample.power_watts = milliwatts / 1000.0;
  return sample;
}

Status Nvml::watch_xids(const std::string& bus) {
  TRY_ASSIGN(void* const handle, device(bus));
  if (events_ == nullptr) TRY(check("nvmlEventSetCreate", nvml_.create_events(&events_)));
  TRY(check("nvmlDeviceRegisterEvents",
            nvml_.register_events(handle, NvmlFunctions::kXidEvent, events_)));
  watched_.push_back({bus, handle});
  return {};
}

std::vector<Xid> Nvml::new_xids() {
  std::vector<Xid> xids;
  if (events_ == nullptr) return xids;
  NvmlFunctions::Event event;
  for (int i = 0; i < kXidsMax && nvml_.wait_event(events_, &event, 0) == 0; ++i) {
    if ((event.type & NvmlFunctions::kXidEvent) == 0) continue;
    for (const Watched& watched : watched_) {
      if (watched.device == event.device) xids.push_back({watched.bus, event.data});
    }
  }
  return xids;
}

}  // namespace lockstep::kernels
