#include "agent/comm/reduce.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "agent/comm/copy.h"
#include "common/base/random.h"
#include "tests/agent/comm/values.h"

namespace lockstep::comm {
namespace {

template <class T>
T reduced(DataType type, ReduceOp op, T a, T b) {
  T into{};
  reduce(type, op, {.into = &into, .a = &a, .b = &b, .count = 1});
  return into;
}

double value_of(DataType type, uint16_t bits) {
  return test::load(type, reinterpret_cast<const std::byte*>(&bits), 0).real;
}

// Whether it is nearest to the sum, with ties to even, by comparison with its neighbours.
bool is_nearest(DataType type, uint16_t got, double exact) {
  const double error = std::fabs(value_of(type, got) - exact);
  for (const int step : {-1, 1}) {
    const auto neighbour = static_cast<uint16_t>(got + step);
    if ((neighbour & 0x8000) != (got & 0x8000)) continue;
    const double other = std::fabs(value_of(type, neighbour) - exact);
    if (other < error || (other == error && (got & 1) != 0)) return false;
  }
  return true;
}

TEST(Reduce, EveryHalfPrecisionNumberSurvivesItsMaximumWithItself) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const uint16_t got = reduced(DataType::kF16, ReduceOp::kMax, half, half);
    if ((half & 0x7fff) > 0x7c00) {
      EXPECT_GT(got & 0x7fff, 0x7c00) << bits;
    } else {
      ASSERT_EQ(got, half);
    }
  }
}

TEST(Reduce, SumsOfHalfAndBrainFloatsAreRoundedToTheNearestOnce) {
  Random random(3);
  for (const DataType type : {DataType::kF16, DataType::kBf16}) {
    for (int turn = 0; turn < 200'000; ++turn) {
      auto a = static_cast<uint16_t>(random.next_u32());
      // Often close to the first one, where bits are lost and ties occur.
      auto b = static_cast<uint16_t>(turn % 2 == 0 ? random.next_u32() : a ^ random.below(0x800));
      const double exact = value_of(type, a) + value_of(type, b);
      const double largest = type == DataType::kF16 ? 65000 : 3e38;
      const bool special = (a & 0x7c00) == 0x7c00 || (b & 0x7c00) == 0x7c00;
      if ((type == DataType::kF16 && special) || !std::isfinite(exact) ||
          std::fabs(exact) > largest) {
        continue;
      }
      const uint16_t got = reduced(type, ReduceOp::kSum, a, b);
      ASSERT_TRUE(is_nearest(type, got, exact)) << name_of(type) << " " << a << " + " << b;
    }
  }
}

TEST(Reduce, HalfPrecisionGoesToInfinityFrom65520On) {
  constexpr uint16_t kLargest = 0x7bff;  // 65504
  constexpr uint16_t kFifteen = 0x4b80;
  constexpr uint16_t kSixteen = 0x4c00;
  EXPECT_EQ(reduced(DataType::kF16, ReduceOp::kSum, kLargest, kFifteen), kLargest);
  EXPECT_EQ(reduced(DataType::kF16, ReduceOp::kSum, kLargest, kSixteen), 0x7c00);
}

TEST(Reduce, IntegersWrapAround) {
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(reduced<int32_t>(DataType::kI32, ReduceOp::kSum, kMax, 1),
            std::numeric_limits<int32_t>::min());
  EXPECT_EQ(reduced<int32_t>(DataType::kI32, ReduceOp::kProd, kMax, 2), -2);
  EXPECT_EQ(reduced<uint8_t>(DataType::kU8, ReduceOp::kSum, 200, 100), 44);
  EXPECT_EQ(reduced<uint8_t>(DataType::kU8, ReduceOp::kProd, 20, 20), 144);
  EXPECT_EQ(reduced<int64_t>(DataType::kI64, ReduceOp::kProd, int64_t{1} << 62, 4), 0);
}

TEST(Reduce, TheAverageOfIntegersIsCutOffTowardsZero) {
  std::array<int32_t, 3> values = {-7, 7, 8};
  divide_by_ranks(DataType::kI32, values.data(), values.size(), 2);
  EXPECT_EQ(values, (std::array<int32_t, 3>{-3, 3, 4}));
}

TEST(Reduce, LogicalOrOfFloatsCountsEverythingButZeroAndIsOneOrZero) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(reduced(DataType::kF32, ReduceOp::kLor, 0.f, -0.f), 0.f);
  EXPECT_EQ(reduced(DataType::kF32, ReduceOp::kLor, 0.f, -7.f), 1.f);
  EXPECT_EQ(reduced(DataType::kF32, ReduceOp::kLor, nan, 0.f), 1.f);
  EXPECT_EQ(reduced<uint8_t>(DataType::kU8, ReduceOp::kLor, 200, 0), 1);
}

TEST(Reduce, MayWriteOverEitherOperand) {
  for (const bool over_first : {true, false}) {
    std::vector<float> a(1000, 3.f);
    std::vector<float> b(1000, 4.f);
    std::vector<float>& into = over_first ? a : b;
    reduce(DataType::kF32, ReduceOp::kProd,
           {.into = into.data(), .a = a.data(), .b = b.data(), .count = a.size()});
    EXPECT_EQ(into, std::vector<float>(1000, 12.f));
  }
}

TEST(CopyPastCache, CopiesEveryByteOfAnyPlaceAndLengthAndNoOther) {
  std::vector<std::byte> from(512);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
  for (size_t place = 0; place < 70; place += 3) {
    for (size_t bytes = 0; bytes <= 300; bytes += 11) {
      std::vector<std::byte> into(512, std::byte{0xa5});
      copy_past_cache(into.data() + place, from.data() + place / 2, bytes);
      for (size_t i = 0; i < into.size(); ++i) {
        const bool inside = i >= place && i < place + bytes;
        const std::byte wanted = inside ? from[i - place + place / 2] : std::byte{0xa5};
        ASSERT_EQ(into[i], wanted) << place << ", " << bytes << ", at " << i;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::comm
