#include "tests/kernels/gpu_cases.h"

#include <cstdio>
#include <filesystem>

#include "kernels/device/device.h"

namespace lockstep::test {

Status expect(bool holds, const std::string& words) {
  if (holds) return {};
  return internal(words);
}

int run_gpu_cases(const std::vector<GpuCase>& cases) {
  const bool has_gpu = device_count(DeviceType::kCuda) > 0;
  if (!has_gpu && std::filesystem::exists("/dev/nvidiactl")) {
    std::printf("NVIDIA's driver is here, but no device can be used: %s\n",
                describe({DeviceType::kCuda, 0}).error().message.c_str());
    return 1;
  }
  size_t passed = 0;
  size_t failed = 0;
  size_t skipped = 0;
  for (const GpuCase& one : cases) {
    const Status status = has_gpu ? one.run() : Status();
    const char* verdict = !has_gpu ? "skipped, no CUDA device" : status.ok() ? "ok" : "FAILED";
    ++(!has_gpu ? skipped : status.ok() ? passed : failed);
    std::printf("%s: %s%s%s\n", one.name.c_str(), verdict, status.ok() ? "" : ": ",
                status.ok() ? "" : status.error().message.c_str());
  }
  std::printf("%zu cases: %zu passed, %zu failed, %zu skipped\n", cases.size(), passed, failed,
              skipped);
  if (failed > 0) return 1;
  return has_gpu ? 0 : 77;
}

}  // namespace lockstep::test
