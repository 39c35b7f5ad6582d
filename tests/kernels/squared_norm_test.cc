// Sums of squares that do not depend on the order, on every instruction set of this machine.
#include "kernels/ops/squared_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/device/parallel.h"
#include "tests/kernels/isa_test.h"

namespace lockstep::kernels {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Values whose squares differ by 2^(4 spread), at most.
std::vector<float> values_of(size_t count, int spread, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    const auto mantissa = static_cast<float>(random() % (1 << 24)) - (1 << 23);
    value = std::ldexp(mantissa, static_cast<int>(random() % (2 * spread + 1)) - spread - 23);
  }
  return values;
}

// Sums the squares exactly enough, in the order of their sizes.
double reference(const std::vector<float>& values) {
  std::vector<long double> squares;
  for (const float v : values) squares.push_back(static_cast<long double>(v) * v);
  std::ranges::sort(squares);
  long double sum = 0;
  for (const long double square : squares) sum += square;
  return static_cast<double>(sum);
}

class SquaredNormTest : public IsaTest {
 protected:
  ~SquaredNormTest() override { set_threads(1); }

  double value(const std::vector<FlatTensor>& tensors) {
    SquareSum sum;
    ops().squared_norm(stream_, {.tensors = tensors, .sum = &sum});
    return value_of(sum);
  }
  double value(const std::vector<float>& values) {
    return value({{values.data(), static_cast<int64_t>(values.size())}});
  }
};

TEST_P(SquaredNormTest, IsTheSumOfTheSquares) {
  for (const int spread : {0, 3, 20, 60}) {
    const std::vector<float> values = values_of(20'000, spread, 1);
    const double expected = reference(values);
    EXPECT_NEAR(value(values), expected, 1e-13 * expected) << spread;
  }
  EXPECT_EQ(value(std::vector<float>{3.0f, -4.0f}), 25.0);
  EXPECT_EQ(value(std::vector<float>(5, 0.0f)), 0.0);
}

TEST_P(SquaredNormTest, DependsNeitherOnTheOrderNorOnTheSplitNorOnThreads) {
  for (const int spread : {0, 3, 12, 25, 60}) {
    std::vector<float> values = values_of(50'000, spread, 2);
    const double whole = value(values);
    std::mt19937_64 random(3);
    for (int round = 0; round < 20; ++round) {
      set_threads(1 + round % 4);
      std::ranges::shuffle(values, random);
      std::vector<FlatTensor> parts;
      for (size_t at = 0; at < values.size();) {
        const size_t count = std::min<size_t>(values.size() - at, 1 + random() % 9'000);
        parts.push_back({values.data() + at, static_cast<int64_t>(count)});
        at += count;
      }
      std::ranges::shuffle(parts, random);
      ASSERT_EQ(value(parts), whole) << "spread " << spread << ", round " << round;
    }
  }
}

// Places of the grid: squares at, below and above each border.
TEST_P(SquaredNormTest, DoesNotDependOnTheSplitAtTheBordersOfTheGrid) {
  for (int exponent = -148; exponent < 126; ++exponent) {
    const float power = std::ldexp(1.0f, exponent);
    const std::vector<float> values{power * 1.4142135f,
                                    power * 1.4142137f,
                                    power,
                                    std::nextafter(power, 0.0f),
                                    std::ldexp(power, -24) * 1.4142137f,
                                    std::ldexp(power, -25) * 1.1f};
    const double whole = value(values);
    std::vector<FlatTensor> parts;
    for (const float& single : values) parts.push_back({&single, 1});
    EXPECT_EQ(value(parts), whole) << exponent;
    const double expected = reference(values);
    EXPECT_NEAR(whole, expected, 1e-13 * expected) << exponent;
  }
}

TEST_P(SquaredNormTest, FindsAnElementThatCountsTwice) {
  const std::vector<float> values = values_of(4'000, 3, 4);
  const auto count = static_cast<int64_t>(values.size());
  EXPECT_NE(value({{values.data(), count}, {values.data() + 17, 1}}), value(values));
}

TEST_P(SquaredNormTest, TakesTheLargestAndTheSmallestNumbers) {
  const float most = std::numeric_limits<float>::max();
  const float least = std::numeric_limits<float>::denorm_min();
  const double square = static_cast<double>(most) * static_cast<double>(most);
  EXPECT_NEAR(value(std::vector<float>(10'000, most)), 1e4 * square, 1e-10 * square);
  EXPECT_EQ(value(std::vector<float>(1'024, least)), std::ldexp(1.0, 10 - 298));
  EXPECT_EQ(value(std::vector<float>{most, least}), square);
}

TEST_P(SquaredNormTest, IsNotFiniteWhereANumberIsNot) {
  std::vector<float> values(9'000, 1.0f);
  values[8'000] = -kInfinity;
  EXPECT_EQ(value(values), static_cast<double>(kInfinity));
  values[3] = kNan;
  EXPECT_TRUE(std::isnan(value(values)));
}

INSTANTIATE_TEST_SUITE_P(Isas, SquaredNormTest, each_isa(), isa_name);

}  // namespace

}  // namespace lockstep::kernels
