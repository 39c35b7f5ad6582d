#include "agent/train/matmul_peak.h"

#include <algorithm>

#include "agent/train/random_fill.h"

namespace lockstep::train {

Result<double> matmul_peak(const kernels::OpTable& ops, kernels::Stream& stream,
                           const MatmulPeakOptions& options, const Clock& clock) {
  constexpr char kBy[] = "the measurement of the peak";
  const kernels::MatmulShape& s = options.shape;
  const kernels::Device device = stream.device();
  const bool is_bf16 = options.dtype == kernels::DType::kBf16;
  const kernels::DType y_dtype =
      device.type == kernels::DeviceType::kCpu ? kernels::DType::kF32 : options.dtype;
  const kernels::Precision precision =
      is_bf16 ? kernels::Precision::kBf16 : kernels::Precision::kF32;
  const auto bytes = [](int64_t rows, int64_t columns, kernels::DType dtype) {
    return static_cast<size_t>(rows * columns) * kernels::dtype_bytes(dtype);
  };
  TRY_ASSIGN(kernels::Buffer x,
             kernels::Buffer::allocate(device, bytes(s.m, s.k, options.dtype), kBy));
  TRY_ASSIGN(kernels::Buffer weight,
             kernels::Buffer::allocate(device, bytes(s.n, s.k, options.dtype), kBy));
  TRY_ASSIGN(kernels::Buffer y, kernels::Buffer::allocate(device, bytes(s.m, s.n, y_dtype), kBy));
  TRY_ASSIGN(kernels::Buffer workspace,
             kernels::Buffer::allocate(
                 device, kernels::matmul_forward_workspace(s, precision, device.type), kBy));
  TRY(fill_random(stream, x, options.dtype));
  TRY(fill_random(stream, weight, options.dtype));
  const kernels::MatmulForward product{.x = {x.data(), options.dtype},
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

Result<double> matmul_peak(kernels::Device device, const MatmulPeakOptions& options,
                           const Clock& clock) {
  TRY_ASSIGN(const kernels::OpTable* ops, kernels::device_ops(device.type));
  TRY_ASSIGN(kernels::Stream stream, kernels::Stream::create(device));
  return matmul_peak(*ops, stream, options, clock);
}

}  // namespace lockstep::train
