#include "agent/train/matmul_peak.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/base/random.h"

namespace lockstep {
namespace {

constexpr size_t kPieceBytes = size_t{4} << 20;

// Numbers in [-1, 1): the upper half of a float is the bf16 of it.
std::vector<std::byte> random_numbers(DType dtype, size_t bytes) {
  Random random(1);
  std::vector<std::byte> numbers(bytes);
  const size_t each = dtype_bytes(dtype);
  for (size_t at = 0; at + each <= bytes; at += each) {
    const auto value = static_cast<float>(static_cast<double>(random.below(1 << 16)) / 32768 - 1);
    std::byte raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);
    std::memcpy(&numbers[at], raw + (sizeof value - each), each);  // little-endian
  }
  return numbers;
}

// The same piece again and again: what a product costs doesn't depend on it.
Status fill(Stream& stream, Buffer& buffer, const std::vector<std::byte>& piece) {
  for (size_t at = 0; at < buffer.bytes(); at += piece.size()) {
    TRY(copy_bytes(stream, {.to = static_cast<std::byte*>(buffer.data()) + at,
                            .from = piece.data(),
                            .bytes = std::min(piece.size(), buffer.bytes() - at)}));
  }
  return stream.synchronize();
}

}  // namespace

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
  const std::vector<std::byte> piece = random_numbers(options.dtype, kPieceBytes);
  TRY(fill(stream, x, piece));
  TRY(fill(stream, weight, piece));
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
