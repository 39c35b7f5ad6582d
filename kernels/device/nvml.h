#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace lockstep {

// The functions of NVIDIA's management library that are used, as its documentation gives them
// (NVML API reference guide); 0 is success. Loaded at run time, so that neither header nor library
// is needed to build or to start.
struct NvmlFunctions {
  using Handle = void*;
  struct Utilisation {
    unsigned gpu = 0;  // percent of the last sample's time
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
    unsigned long long data = 0;  // of kXidEvent: the Xid
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

// What a GPU says of itself; what it can't say is not there.
struct GpuSample {
  std::optional<int> busy_percent;
  std::optional<uint64_t> memory_used_bytes;
  std::optional<uint64_t> memory_total_bytes;
  std::optional<double> power_watts;
};

struct Xid {
  std::string bus;
  uint64_t number = 0;  // NVIDIA's list of Xid errors says what it means
};

// GPUs are named by their PCI bus id, as DeviceInfo gives it. One thread at a time. Not run on a
// GPU.
class Nvml {
 public:
  // kUnavailable where the library is not, which harms nothing else.
  static Result<std::unique_ptr<Nvml>> load();
  static Result<std::unique_ptr<Nvml>> over(const NvmlFunctions& functions);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Its NVLinks that are up; 0 where it has none.
  Result<int> nvlinks(const std::string& bus);
  Result<GpuSample> sample(const std::string& bus);
  // From now on new_xids() tells of this GPU.
  Status watch_xids(const std::string& bus);
  // Those since the last call, at most kXidsMax; doesn't wait.
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

}  // namespace lockstep
