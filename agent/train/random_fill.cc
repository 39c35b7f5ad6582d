#include "agent/train/random_fill.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "common/base/random.h"

namespace lockstep::train {
namespace {

constexpr size_t kPieceBytes = size_t{4} << 20;

// Numbers in [-1, 1): the upper half of a float is the bf16 of it.
std::vector<std::byte> random_numbers(kernels::DType dtype, size_t bytes) {
  Random random(1);
  std::vector<std::byte> numbers(bytes);
  const size_t each = kernels::dtype_bytes(dtype);
  for (size_t at = 0; at + each <= bytes; at += each) {
    const auto value = static_cast<float>(static_cast<double>(random.below(1 << 16)) / 32768 - 1);
    std::byte raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);
    std::memcpy(&numbers[at], raw + (sizeof value - each), each);  // little-endian
  }
  return numbers;
}

}  // namespace

Status fill_random(kernels::Stream& stream, kernels::Buffer& buffer, kernels::DType dtype) {
  const std::vector<std::byte> piece = random_numbers(dtype, kPieceBytes);
  for (size_t at = 0; at < buffer.bytes(); at += piece.size()) {
    TRY(kernels::copy_bytes(stream, {.to = static_cast<std::byte*>(buffer.data()) + at,
                                     .from = piece.data(),
                                     .bytes = std::min(piece.size(), buffer.bytes() - at)}));
  }
  return stream.synchronize();
}

}  // namespace lockstep::train
