#include "tests/kernels/gpu_cases.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>

#include "kernels/device/device.h"

namespace lockstep::test {

namespace {

constexpr kernels::Device kGpu{kernels::DeviceType::kCuda, 0};
constexpr int kSkipped = 77;  // SKIP_RETURN_CODE of the tests

// Tests an allocation, a copy and the stream's status.
Status device_works() {
  TRY_ASSIGN(kernels::Stream stream, kernels::Stream::create(kGpu));
  TRY_ASSIGN(const kernels::Buffer buffer, kernels::Buffer::allocate(kGpu, 1));
  char byte = 1;
  TRY(kernels::copy_bytes(stream, {.to = &byte, .from = buffer.data(), .bytes = 1}));
  TRY(stream.synchronize());
  return expect(byte == 0, "memory that is not zeroed");
}

struct Numbers {
  size_t passed = 0;
  size_t failed = 0;
  size_t skipped = 0;
  size_t not_run = 0;
};

void print(const GpuCase& one, const char* verdict, const Status& status) {
  std::printf("%s: %s%s%s\n", one.name.c_str(), verdict, status.ok() ? "" : ": ",
              status.ok() ? "" : status.error().message.c_str());
}

void run_case(const GpuCase& one, const GpuRun& run, Status& context, Numbers& numbers) {
  if (!run.has_device) {
    ++numbers.skipped;
    return print(one, "skipped, no CUDA device", {});
  }
  if (!context.ok()) {
    ++numbers.not_run;
    return print(one, "not run after a broken context", {});
  }
  const Status status = one.run();
  ++(status.ok() ? numbers.passed : numbers.failed);
  print(one, status.ok() ? "ok" : "FAILED", status);
  if (!status.ok()) context = run.works();
  if (!context.ok()) std::printf("the device is lost: %s\n", context.error().message.c_str());
}

struct Arguments {
  bool sync = false;
  size_t skip = 0;
};

// Returns nullopt for arguments that are wrong.
std::optional<Arguments> parse(std::span<char* const> arguments, size_t cases) {
  Arguments parsed;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--sync") {
      parsed.sync = true;
    } else if (argument == "--skip" && i + 1 < arguments.size()) {
      const std::string_view number = arguments[++i];
      const auto end = number.data() + number.size();
      const auto read = std::from_chars(number.data(), end, parsed.skip);
      if (read.ec != std::errc() || read.ptr != end || parsed.skip > cases) return std::nullopt;
    } else {
      return std::nullopt;
    }
  }
  return parsed;
}

}  // namespace

Status expect(bool holds, const std::string& words) {
  if (holds) return {};
  return internal(words);
}

int run_cases(std::span<const GpuCase> cases, const GpuRun& run) {
  // Line-buffered even into a pipe, so that results are printed before a crash.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  Numbers numbers;
  Status context;
  for (const GpuCase& one : cases) run_case(one, run, context, numbers);
  std::printf("%zu cases: %zu passed, %zu failed, %zu skipped, %zu not run\n", cases.size(),
              numbers.passed, numbers.failed, numbers.skipped, numbers.not_run);
  if (numbers.failed + numbers.not_run > 0) return 1;
  return run.has_device ? 0 : kSkipped;
}

int run_gpu_cases(std::span<const GpuCase> cases, std::span<char* const> arguments) {
  const std::optional<Arguments> wanted = parse(arguments.subspan(1), cases.size());
  if (!wanted) {
    std::fprintf(stderr, "usage: %s [--sync] [--skip CASES]\n", arguments[0]);
    return 2;
  }
  if (wanted->sync) ::setenv("CUDA_LAUNCH_BLOCKING", "1", 1);  // CUDA reads it at initialization
  const int without = code_without_gpu();
  if (without != 0 && without != kSkipped) return without;
  return run_cases(cases.subspan(wanted->skip),
                   {.has_device = without == 0, .works = device_works});
}

int code_without_gpu() {
  if (kernels::device_count(kernels::DeviceType::kCuda) > 0) return 0;
  if (!std::filesystem::exists("/dev/nvidiactl")) return kSkipped;
  std::printf("NVIDIA's driver is here, but no device can be used: %s\n",
              kernels::describe(kGpu).error().message.c_str());
  return 1;
}

}  // namespace lockstep::test
