#include "agent/train/weights/float_decode.h"

#include <bit>
#include <cstring>

#include "common/base/check.h"

namespace lockstep::train {
namespace {

uint16_t half_word(const char* from, int64_t index) {
  uint16_t word = 0;
  std::memcpy(&word, from + 2 * index, sizeof(word));
  return word;
}

float from_bf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// IEEE 754 binary16: 1 bit of sign, 5 of exponent (bias 15), 10 of fraction.
float from_f16(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16;
  const uint32_t exponent = bits >> 10 & 0x1fu;
  const uint32_t fraction = bits & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: fraction x 2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

}  // namespace

bool is_float_dtype(std::string_view dtype) {
  return dtype == "F32" || dtype == "F16" || dtype == "BF16";
}

void decode_floats(std::string_view dtype, const char* from, int64_t count, float* to) {
  CHECK(is_float_dtype(dtype));
  if (dtype == "F32") {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  float (*decode)(uint16_t) = dtype == "F16" ? from_f16 : from_bf16;
  for (int64_t i = 0; i < count; ++i) to[i] = decode(half_word(from, i));
}

}  // namespace lockstep::train
