#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "kernels/device/device.h"

// Texts of device errors. Pure, so they can be tested without a device.
namespace lockstep::kernels {

// "CPU", "CUDA device 1"
std::string name_of(Device device);

// Returns for example "512 bytes", "1.50 KiB", "79.2 GiB": three digits, truncated instead of
// rounded, so that a size reported to fit does fit.
std::string bytes_text(uint64_t bytes);

// A failed call of a device library, as it is written in the source.
struct FailedCall {
  std::string_view call;
  std::string_view file;  // __FILE__; errors show only its last part
  int line = 0;
  Device device;
};
// kUnavailable: "[cuda] cudaMalloc(&data, bytes) at cuda_api.cc:72 on CUDA device 1 failed: invalid
// argument".
Error call_error(const FailedCall& call, std::string_view reason);

// A failed memory request.
struct FailedAllocation {
  Device device;
  uint64_t bytes = 0;
  std::string_view by;  // the purpose: "gradients"
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;  // 0 if neither is known
};
// kUnavailable: "[memory] 4.00 GiB (4294967296 bytes) for gradients on CUDA device 0: 1.20 GiB of
// 79.1 GiB are free, 2.80 GiB short; at most 1288490188 bytes fit".
Error out_of_memory(const FailedAllocation& failed);

}  // namespace lockstep::kernels
