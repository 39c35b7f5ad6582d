#include "agent/train/weights/float_decode.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "agent/train/weights/transpose.h"

namespace lockstep::train {
namespace {

// Decodes one value of a 16-bit type.
float decoded(const char* dtype, int bits) {
  const auto word = static_cast<uint16_t>(bits);
  char bytes[2];
  std::memcpy(bytes, &word, sizeof(word));
  float value = 0;
  decode_floats(dtype, bytes, 1, &value);
  return value;
}

TEST(FloatDecode, WidensEveryF16Exactly) {
  for (int bits = 0; bits < 1 << 16; ++bits) {
    const int exponent = bits >> 10 & 31;
    const int fraction = bits & 1023;
    double expected =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    if (exponent == 31) expected = std::numeric_limits<double>::infinity();
    if (bits >= 1 << 15) expected = -expected;
    const float value = decoded("F16", bits);
    if (exponent == 31 && fraction != 0) {
      ASSERT_TRUE(std::isnan(value)) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(value), expected) << bits;
    }
    ASSERT_EQ(std::signbit(value), bits >= 1 << 15) << bits;
  }
}

TEST(FloatDecode, WidensBf16AsTheUpperHalfAndKeepsF32) {
  EXPECT_EQ(decoded("BF16", 0x3fc0), 1.5f);
  EXPECT_EQ(decoded("BF16", 0xc2f7), -123.5f);
  EXPECT_EQ(std::bit_cast<uint32_t>(decoded("BF16", 0x7fc1)), 0x7fc10000u);
  const float values[] = {1.25f, -0.0f, std::numeric_limits<float>::denorm_min()};
  char bytes[sizeof(values)];
  std::memcpy(bytes, values, sizeof(values));
  float back[3];
  decode_floats("F32", bytes, 3, back);
  EXPECT_EQ(std::memcmp(back, values, sizeof(values)), 0);
  for (const char* dtype : {"F64", "I16", "U8", "F8_E4M3", ""}) EXPECT_FALSE(is_float_dtype(dtype));
}

TEST(Transpose, PutsEveryElementInItsPlace) {
  for (const MatrixSize size :
       {MatrixSize{1, 1}, {1, 70}, {70, 1}, {32, 32}, {33, 31}, {64, 96}, {100, 37}}) {
    std::vector<float> from(static_cast<size_t>(size.rows * size.columns));
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
    std::vector<float> to(from.size(), -1);
    transpose(from.data(), size, to.data());
    for (int64_t r = 0; r < size.rows; ++r) {
      for (int64_t c = 0; c < size.columns; ++c) {
        ASSERT_EQ(to[static_cast<size_t>(c * size.rows + r)],
                  from[static_cast<size_t>(r * size.columns + c)])
            << size.rows << " x " << size.columns;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::train
