#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace lockstep::kernels {

// The NVML (NVIDIA Management Library) functions we use, declared as in the NVML API reference
// guide; 0 is success. Loaded at run time, so neither the header nor the library is needed to build
// or start.
struct NvmlFunctions {
  using Handle = void*;
  struct Utilisation {
    unsigned gpu = 0;  // percent of time, over the last sample period
    unsigned memory = 0;
  };
  struct Memory {
    unsigned long long total = 0;
    unsigned long long free = 0;
    unsigned long long used = 0;
  };
  struct Event {
    Handle device = nullptr;
    unsigned long long type = 0;
    unsigned long long data = 0;  // for kXidEvent, the Xid
    unsigned gpu_instance = 0;
    unsigned compute_instance = 0;
  };
  static constexpr unsigned long long kXidEvent = 8;

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*device_by_bus)(const char* bus, Handle* device) = nullptr;
  int (*link_state)(Handle device, unsigned link, unsigned* is_active) = nullptr;
  int (*utilisation)(Handle device, Utilisation* into) = nullptr;
  int (*memory)(Handle device, Memory* into) = nullptr;
  int (*power)(Handle device, unsigned* milliwatts) = nullptr;
  int (*create_events)(Handle* set) = nullptr;
  int (*register_events)(Handle device, unsigned long long types, Handle set) = nullptr;
  int (*wait_event)(Handle set, Event* into, unsigned timeout_ms) = nullptr;
  int (*free_events)(Handle set) = nullptr;
};

// Metrics of a GPU; empty where the GPU does not support a metric.
struct GpuSample {
  std::optional<int> busy_percent;
  std::optional<uint64_t> memory_used_bytes;
  std::optional<uint64_t> memory_total_bytes;
  std::optional<double> power_watts;
};

struct Xid {
  std::string bus;
  uint64_t number = 0;  // see NVIDIA's list of Xid errors
};

// Identifies GPUs by PCI bus id, as in DeviceInfo. Not thread-safe.
class Nvml {
 public:
  // kUnavailable if the library is missing; nothing else depends on it.
  static Result<std::unique_ptr<Nvml>> load();
  static Result<std::unique_ptr<Nvml>> with_functions(const NvmlFunctions& functions);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Returns the number of active NVLinks.
  Result<int> nvlinks(const std::string& bus);
  Result<GpuSample> sample(const std::string& bus);
  // Makes new_xids() report this GPU's Xids from now on.
  Status watch_xids(const std::string& bus);
  // Returns the Xids since the last call, at most kXidsMax; does not block.
  static constexpr int kXidsMax = 64;
  std::vector<Xid> new_xids();

 private:
  explicit Nvml(const NvmlFunctions& functions) : nvml_(functions) {}
  Result<void*> device(const std::string& bus);
  Status check(const char* call, int code) const;

  struct Watched {
    std::string bus;
    void* device = nullptr;
  };
  NvmlFunctions nvml_;
  void* events_ = nullptr;
  std::vector<Watched> watched_;
};

}  // namespace lockstep::kernels
