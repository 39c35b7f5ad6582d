#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/check.h"

namespace lockstep::kernels {

enum class DType : uint8_t { kF32, kBf16 };

constexpr size_t dtype_bytes(DType dtype) {
  return dtype == DType::kF32 ? 4 : 2;
}

// The upper half of a float: 8 exponent bits, 7 fraction bits. Storage only; arithmetic is fp32.
struct Bf16 {
  uint16_t bits = 0;
  bool operator==(const Bf16&) const = default;
};

// A dtype-tagged pointer to elements on a device; owns nothing. Null means "not given". A plain
// float* or Bf16* converts, so that arguments read `.x = activations`.
struct ConstView {
  const void* data = nullptr;
  DType dtype = DType::kF32;

  constexpr ConstView() = default;
  constexpr ConstView(std::nullptr_t) {}
  constexpr ConstView(const float* p) : data(p), dtype(DType::kF32) {}
  constexpr ConstView(const Bf16* p) : data(p), dtype(DType::kBf16) {}
  constexpr ConstView(const void* p, DType type) : data(p), dtype(type) {}

  explicit operator bool() const { return data != nullptr; }
  // Return the elements as their own type; asking for another dtype is a bug. Null stays null.
  const float* f32() const {
    CHECK(data == nullptr || dtype == DType::kF32);
    return static_cast<const float*>(data);
  }
  const Bf16* bf16() const {
    CHECK(data == nullptr || dtype == DType::kBf16);
    return static_cast<const Bf16*>(data);
  }
};

struct View {
  void* data = nullptr;
  DType dtype = DType::kF32;

  constexpr View() = default;
  constexpr View(std::nullptr_t) {}
  constexpr View(float* p) : data(p), dtype(DType::kF32) {}
  constexpr View(Bf16* p) : data(p), dtype(DType::kBf16) {}
  constexpr View(void* p, DType type) : data(p), dtype(type) {}

  operator ConstView() const { return {data, dtype}; }
  explicit operator bool() const { return data != nullptr; }
  float* f32() const {
    CHECK(data == nullptr || dtype == DType::kF32);
    return static_cast<float*>(data);
  }
  Bf16* bf16() const {
    CHECK(data == nullptr || dtype == DType::kBf16);
    return static_cast<Bf16*>(data);
  }
};

// Scratch memory that an op uses until it is done, never across calls. Aligned to 64 bytes (256 on
// CUDA). The pure functions `..._workspace` return how many bytes an op needs. Ops of one stream
// may share one workspace of the largest size.
struct Workspace {
  void* data = nullptr;
  size_t bytes = 0;
};

}  // namespace lockstep::kernels
