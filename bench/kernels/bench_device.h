#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "bench/kernels/work.h"
#include "common/base/result.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::bench {

// The device that is measured: its ops and a stream.
struct BenchDevice {
  const kernels::OpTable& ops;
  kernels::Stream stream;

  kernels::Device device() const { return stream.device(); }
  bool on_cpu() const { return device().type == kernels::DeviceType::kCpu; }
};
// kUnavailable or kNotFound, with the device's message, if it cannot be used.
Result<BenchDevice> open_bench_device(kernels::DeviceType type);

// A call of one op, ready to be timed.
struct Call {
  Work work;
  size_t op = 0;  // index of the op in OpTable
  std::function<void()> run;
};

struct Range {
  float low = -1.0f;
  float high = 1.0f;
};

// The tensors of one call, on the device, and other data its arguments point to. All of it lives as
// long as the object. The first failure is kept; later requests return null.
class Memory {
 public:
  explicit Memory(BenchDevice& bench_device) : bench_device_(bench_device) {}

  // Uniform random numbers in the range; repeats a piece of a million elements.
  kernels::View numbers(int64_t count, kernels::DType dtype, Range range = {});
  float* floats(int64_t count, Range range = {});
  double* doubles(const std::vector<double>& values);
  float* values(const std::vector<float>& numbers);
  int32_t* integers(const std::vector<int32_t>& values);
  kernels::Workspace workspace(size_t bytes);

  std::deque<std::vector<kernels::UpdatedTensor>> updated;
  std::deque<std::vector<kernels::FlatTensor>> flat;

  BenchDevice& bench_device() { return bench_device_; }
  const Status& status() const { return status_; }
  void note(const Status& status);

  // Copies the arguments, so they must be complete.
  template <class Args>
  Call call(void (*kernels::OpTable::*op)(kernels::Stream&, const Args&), const Args& args) {
    constexpr bool kIsCounted = requires {
      work_of(args);
    };
    static_assert(kIsCounted, "bench/kernels/work.h has no work_of() for these arguments");
    const auto offset = reinterpret_cast<const char*>(&(bench_device_.ops.*op)) -
                        reinterpret_cast<const char*>(&bench_device_.ops);
    return {.work = work_of(args),
            .op = static_cast<size_t>(offset) / sizeof(void*),
            .run = [&bench_device = bench_device_, op, args] {
              (bench_device.ops.*op)(bench_device.stream, args);
            }};
  }

 private:
  void* allocate(size_t bytes);
  void* copied(const void* from, size_t bytes);
  Status fill(void* to, size_t bytes, const std::vector<uint8_t>& piece);

  BenchDevice& bench_device_;
  std::vector<kernels::Buffer> buffers_;
  Status status_;
};

}  // namespace lockstep::bench
