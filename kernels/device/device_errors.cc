#include "kernels/device/device_words.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace lockstep {

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

Error call_error(const FailedCall& call, std::string_view got) {
  const size_t slash = call.file.rfind('/');
  const std::string_view file =
      slash == std::string_view::npos ? call.file : call.file.substr(slash + 1);
  return unavailable("[cuda] " + std::string(call.call) + " at " + std::string(file) + ":" +
                     std::to_string(call.line) + " on " + name_of(call.device) +
                     ": success expected, got " + std::string(got));
}

Error out_of_memory(const MemoryWish& wish) {
  std::string text = "[memory] " + bytes_text(wish.bytes) + " (" + std::to_string(wish.bytes) +
                     " bytes) for " + std::string(wish.by) + " on " + name_of(wish.device) + ": ";
  if (wish.total_bytes == 0) return unavailable(text + "none left");
  text += bytes_text(wish.free_bytes) + " of " + bytes_text(wish.total_bytes) + " are free";
  // Free memory is fragmented, and the driver keeps some of it for itself.
  if (wish.free_bytes >= wish.bytes) return unavailable(text + ", but not in one piece");
  return unavailable(text + ", " + bytes_text(wish.bytes - wish.free_bytes) + " too few; at most " +
                     std::to_string(wish.free_bytes) + " bytes fit");
}

}  // namespace lockstep
