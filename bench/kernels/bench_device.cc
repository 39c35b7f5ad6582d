#include "bench/kernels/bench_device.h"

#include <algorithm>
#include <bit>

#include "common/base/random.h"

namespace lockstep::bench {

namespace {

constexpr int64_t kPieceElements = int64_t{1} << 20;

// A bf16 is the upper half of the float.
std::vector<uint8_t> random_piece(int64_t count, kernels::DType dtype, Range range) {
  Random random(1);
  const size_t each = kernels::dtype_bytes(dtype);
  std::vector<uint8_t> bytes(static_cast<size_t>(std::min(count, kPieceElements)) * each);
  for (size_t at = 0; at < bytes.size(); at += each) {
    const float value = range.low + (range.high - range.low) * random.uniform();
    uint32_t bits = std::bit_cast<uint32_t>(value) >> (dtype == kernels::DType::kBf16 ? 16 : 0);
    for (size_t i = 0; i < each; ++i, bits >>= 8) bytes[at + i] = static_cast<uint8_t>(bits);
  }
  return bytes;
}

}  // namespace

Result<BenchDevice> open_bench_device(kernels::DeviceType type) {
  const kernels::Device device{type, 0};
  if (type == kernels::DeviceType::kCuda) TRY(kernels::describe(device));
  TRY_ASSIGN(const kernels::OpTable* ops, kernels::device_ops(type));
  TRY_ASSIGN(kernels::Stream stream, kernels::Stream::create(device));
  return BenchDevice{*ops, std::move(stream)};
}

kernels::View Memory::numbers(int64_t count, kernels::DType dtype, Range range) {
  const size_t bytes = static_cast<size_t>(count) * kernels::dtype_bytes(dtype);
  void* data = allocate(bytes);
  if (data != nullptr) note(fill(data, bytes, random_piece(count, dtype, range)));
  return {data, dtype};
}

float* Memory::floats(int64_t count, Range range) {
  return numbers(count, kernels::DType::kF32, range).f32();
}

float* Memory::values(const std::vector<float>& numbers) {
  return static_cast<float*>(copied(numbers.data(), numbers.size() * sizeof(float)));
}

double* Memory::doubles(const std::vector<double>& values) {
  return static_cast<double*>(copied(values.data(), values.size() * sizeof(double)));
}

int32_t* Memory::integers(const std::vector<int32_t>& values) {
  return static_cast<int32_t*>(copied(values.data(), values.size() * sizeof(int32_t)));
}

kernels::Workspace Memory::workspace(size_t bytes) {
  return {allocate(bytes), bytes};
}

void* Memory::allocate(size_t bytes) {
  if (!status_.ok()) return nullptr;
  Result<kernels::Buffer> buffer =
      kernels::Buffer::allocate(bench_device_.device(), bytes, "a bench's tensor");
  if (!buffer.ok()) {
    note(buffer.error());
    return nullptr;
  }
  buffers_.push_back(std::move(buffer).value());
  return buffers_.back().data();
}

// Blocks until the copy is done, because the caller may free the host's values afterwards.
void* Memory::copied(const void* from, size_t bytes) {
  void* to = allocate(bytes);
  if (to == nullptr) return nullptr;
  note(kernels::copy_bytes(bench_device_.stream, {.to = to, .from = from, .bytes = bytes}));
  note(bench_device_.stream.synchronize());
  return to;
}

// Copies the piece from the host once, then repeats the filled part on the device until `to` is
// full.
Status Memory::fill(void* to, size_t bytes, const std::vector<uint8_t>& piece) {
  size_t filled = std::min(piece.size(), bytes);
  TRY(kernels::copy_bytes(bench_device_.stream, {.to = to, .from = piece.data(), .bytes = filled}));
  while (filled < bytes) {
    const size_t more = std::min(filled, bytes - filled);
    TRY(kernels::copy_bytes(bench_device_.stream,
                            {.to = static_cast<uint8_t*>(to) + filled, .from = to, .bytes = more}));
    filled += more;
  }
  return bench_device_.stream.synchronize();
}

void Memory::note(const Status& status) {
  if (status_.ok() && !status.ok()) status_ = status;
}

}  // namespace lockstep::bench
