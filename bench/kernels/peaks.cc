#include "bench/kernels/peaks.h"

#include <algorithm>

#include "agent/train/matmul_peak.h"
#include "common/base/clock.h"
#include "common/layout/device_peak.h"

namespace lockstep::bench {

namespace {

Result<double> memory_peak(BenchDevice& bench_device, int64_t bytes, const SampleOptions& options) {
  Memory memory(bench_device);
  const int64_t count = bytes / static_cast<int64_t>(sizeof(float));
  const kernels::View from = memory.floats(count), to = memory.floats(count);
  TRY(memory.status());
  Status copied;
  const auto copy = [&] {
    const Status status = kernels::copy_bytes(
        bench_device.stream,
        {.to = to.data, .from = from.data, .bytes = static_cast<size_t>(count) * sizeof(float)});
    if (!status.ok()) copied = status;
  };
  const Call scale =
      memory.call(&kernels::OpTable::scale,
                  kernels::Scale{.x = from, .out = to, .count = count, .factor = 1.0f});
  TRY_ASSIGN(const std::vector<Spread> spreads, sample(bench_device, {copy, scale.run}, options));
  TRY(copied);
  const double least = std::min(spreads[0].low, spreads[1].low);
  return least > 0.0 ? scale.work.bytes / least : 0.0;
}

}  // namespace

Result<Peaks> measure_peaks(BenchDevice& bench_device, const PeakSizes& sizes,
                            const SampleOptions& options) {
  const SystemClock clock;
  Peaks peaks;
  TRY_ASSIGN(peaks.bytes, memory_peak(bench_device, sizes.copied_bytes, options));
  train::MatmulPeakOptions product{.shape = sizes.product, .dtype = kernels::DType::kF32};
  TRY_ASSIGN(peaks.f32_flops,
             train::matmul_peak(bench_device.ops, bench_device.stream, product, clock));
  if (bench_device.on_cpu() && !kernels::cpu_matmul_support().native_bf16) return peaks;
  product.dtype = kernels::DType::kBf16;
  TRY_ASSIGN(peaks.bf16_flops,
             train::matmul_peak(bench_device.ops, bench_device.stream, product, clock));
  return peaks;
}

Peaks datasheet_peaks(const std::string& device_name) {
  return {.bytes = datasheet_bytes_per_second(device_name),
          .f32_flops = 0.0,
          .bf16_flops = datasheet_flops_per_second(device_name)};
}

}  // namespace lockstep::bench
