#include "agent/train/matmul_peak.h"

#include <algorithm>

#include "agent/train/random_fill.h"

namespace lockstep {

Result<double> matmul_peak(const OpTable& ops, Stream& stream, const MatmulPeakOptions& options,
                           const Clock& clock) {
  constexpr char kBy[] = "the measurement of the peak";
  const MatmulShape& s = options.shape;
  const Device device = stream.device();
  const bool is_bf16 = options.dtype == DType::kBf16;
  const DType y_dtype = device.type == DeviceType::kCpu ? DType::kF32 : options.dtype;
  const Precision precision = is_bf16 ? Precision::kBf16 : Precision::kF32;
  const auto bytes = [](int64_t rows, int64_t columns, DType dtype) {
    return static_cast<size_t>(rows * columns) * dtype_bytes(dtype);
  };
  TRY_ASSIGN(Buffer x, Buffer::allocate(device, bytes(s.m, s.k, options.dtype), kBy));
  TRY_ASSIGN(Buffer weight, Buffer::allocate(device, bytes(s.n, s.k, options.dtype), kBy));
  TRY_ASSIGN(Buffer y, Buffer::allocate(device, bytes(s.m, s.n, y_dtype), kBy));
  TRY_ASSIGN(Buffer workspace,
             Buffer::allocate(device, matmul_forward_workspace(s, precision, device.type), kBy));
  TRY(fill_random(stream, x, options.dtype));
  TRY(fill_random(stream, weight, options.dtype));
  const MatmulForward product{.x = {x.data(), options.dtype},
                              .weight = {weight.data(), options.dtype},
                              .y = {y.data(), y_dtype},
                              .m = s.m,
                              .n = s.n,
                              .k = s.k,
                              .precision = precision,
                              .workspace = workspace.workspace()};
  const double flops = 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) *
                       static_cast<double>(s.k) * options.times;
  double best = 0;
  for (int round = 0; round <= options.rounds; ++round) {  // the first one to warm up
    const TimePoint begin = clock.now();
    for (int i = 0; i < options.times; ++i) ops.matmul_forward(stream, product);
    TRY(stream.synchronize());
    const double seconds = to_seconds(clock.now() - begin);
    if (round > 0 && seconds > 0) best = std::max(best, flops / seconds);
  }
  return best;
}

Result<double> matmul_peak(Device device, const MatmulPeakOptions& options, const Clock& clock) {
  TRY_ASSIGN(const OpTable* ops, device_ops(device.type));
  TRY_ASSIGN(Stream stream, Stream::create(device));
  return matmul_peak(*ops, stream, options, clock);
}

}  // namespace lockstep
