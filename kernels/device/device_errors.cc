#include "kernels/device/device_errors.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace lockstep::kernels {

std::string name_of(Device device) {
  if (device.type == DeviceType::kCpu) return "CPU";
  return "CUDA device " + std::to_string(device.index);
}

std::string bytes_text(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
  int unit = 0;
  for (uint64_t rest = bytes; rest >= 1024; rest /= 1024) ++unit;
  const double value = std::ldexp(static_cast<double>(bytes), -10 * unit);
  const int decimals = value < 10 ? 2 : value < 100 ? 1 : 0;
  const double scale = std::pow(10.0, decimals);
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.*f %s", decimals, std::floor(value * scale) / scale,
                kUnits[unit]);
  return text.data();
}

Error call_error(const FailedCall& call, std::string_view reason) {
  const size_t slash = call.file.rfind('/');
  const std::string_view file =
      slash == std::string_view::npos ? call.file : call.file.substr(slash + 1);
  return unavailable("[cuda] " + std::string(call.call) + " at " + std::string(file) + ":" +
                     std::to_string(call.line) + " on " + name_of(call.device) +
                     " failed: " + std::string(reason));
}

Error out_of_memory(const FailedAllocation& failed) {
  std::string text = "[memory] " + bytes_text(failed.bytes) + " (" + std::to_string(failed.bytes) +
                     " bytes) for " + std::string(failed.by) + " on " + name_of(failed.device) +
                     ": ";
  if (failed.total_bytes == 0) return unavailable(text + "allocation failed");
  text += bytes_text(failed.free_bytes) + " of " + bytes_text(failed.total_bytes) + " are free";
  // Free memory is fragmented, and the driver keeps some of it for itself.
  if (failed.free_bytes >= failed.bytes) return unavailable(text + ", but fragmented");
  return unavailable(text + ", " + bytes_text(failed.bytes - failed.free_bytes) +
                     " short; at most " + std::to_string(failed.free_bytes) + " bytes fit");
}

}  // namespace lockstep::kernels
