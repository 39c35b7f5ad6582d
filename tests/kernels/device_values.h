#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "common/base/check.h"
#include "common/base/random.h"
#include "kernels/device/device.h"

namespace lockstep::test {

// An fp32 or bf16 tensor on a device, written and read as doubles.
class DeviceValues {
 public:
  // The data starts `offset` elements after the beginning of the buffer. Rounds bf16 to nearest
  // even.
  DeviceValues(kernels::Stream& stream, kernels::DType dtype, const std::vector<double>& values,
               size_t offset = 0)
      : stream_(&stream), dtype_(dtype), count_(values.size()), offset_(offset) {
    Result<kernels::Buffer> buffer = kernels::Buffer::allocate(
        stream.device(), (count_ + offset) * kernels::dtype_bytes(dtype) + 1);
    CHECK(buffer.ok());
    buffer_ = std::move(buffer).value();
    std::vector<char> bytes(count_ * kernels::dtype_bytes(dtype));
    for (size_t i = 0; i < count_; ++i) put(bytes.data(), i, static_cast<float>(values[i]));
    copy(data(), bytes.data(), bytes.size());
  }
  // Returns a tensor filled with NaN.
  static DeviceValues poisoned(kernels::Stream& stream, kernels::DType dtype, int64_t count) {
    return DeviceValues(stream, dtype,
                        std::vector<double>(static_cast<size_t>(count), std::nan("")));
  }

  void* data() const {
    return static_cast<char*>(buffer_.data()) + offset_ * kernels::dtype_bytes(dtype_);
  }
  kernels::View view() const { return {data(), dtype_}; }
  float* f32() const { return view().f32(); }
  std::vector<double> read() const {
    std::vector<char> bytes(count_ * kernels::dtype_bytes(dtype_));
    copy(bytes.data(), data(), bytes.size());
    std::vector<double> values(count_);
    for (size_t i = 0; i < count_; ++i) values[i] = get(bytes.data(), i);
    return values;
  }

 private:
  void copy(void* to, const void* from, size_t bytes) const {
    CHECK(kernels::copy_bytes(*stream_, {.to = to, .from = from, .bytes = bytes}).ok());
    CHECK(stream_->synchronize().ok());
  }
  void put(char* bytes, size_t i, float value) const {
    if (dtype_ == kernels::DType::kF32) {
      std::memcpy(bytes + 4 * i, &value, 4);
      return;
    }
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = std::isnan(value) ? 0x7FC00000u : bits + 0x7FFF + ((bits >> 16) & 1);
    const auto half = static_cast<uint16_t>(rounded >> 16);
    std::memcpy(bytes + 2 * i, &half, 2);
  }
  float get(const char* bytes, size_t i) const {
    uint32_t bits = 0;
    if (dtype_ == kernels::DType::kF32) {
      std::memcpy(&bits, bytes + 4 * i, 4);
    } else {
      std::memcpy(reinterpret_cast<char*>(&bits) + 2, bytes + 2 * i, 2);
    }
    return std::bit_cast<float>(bits);
  }

  kernels::Stream* stream_;
  kernels::DType dtype_;
  size_t count_;
  size_t offset_;
  kernels::Buffer buffer_;
};

inline std::vector<double> random_doubles(int64_t count, double magnitude, Random& random) {
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values) value = magnitude * (2.0 * random.uniform() - 1.0);
  return values;
}

}  // namespace lockstep::test
