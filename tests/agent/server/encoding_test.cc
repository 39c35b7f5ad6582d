// Floats in fewer bits: what they lose, and that feedback brings it back.
#include "agent/server/encoding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "agent/server/residuals.h"
#include "common/base/random.h"

namespace lockstep::server {
namespace {

std::vector<float> normal(size_t count, uint64_t seed = 1) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = random.normal();
  return values;
}

std::vector<float> through(const EncodedFloats& what, const std::vector<float>& values) {
  std::vector<std::byte> bytes(encoded_bytes(what));
  encode(what, values, bytes);
  std::vector<float> back(values.size());
  decode(what, bytes, back);
  return back;
}

TEST(Encoding, TakesTheBytesThatItSays) {
  EXPECT_EQ(encoded_bytes({Encoding::kF32, 300, 256}), 1200u);
  EXPECT_EQ(encoded_bytes({Encoding::kBf16, 300, 256}), 600u);
  EXPECT_EQ(encoded_bytes({Encoding::kInt8, 300, 256}), 308u);
  EXPECT_EQ(encoded_bytes({Encoding::kInt8, 256, 256}), 260u);
  EXPECT_EQ(encoded_bytes({Encoding::kInt8, 0, 256}), 0u);
}

TEST(Encoding, InInt8IsThatOfLongBlocksOnly) {
  for (uint64_t block = 1; block <= 64; ++block) {
    const auto bytes = [=](Encoding encoding) {
      return encoded_bytes({encoding, 3 * block, block});
    };
    const bool is_smaller = bytes(Encoding::kInt8) < bytes(Encoding::kBf16);
    EXPECT_EQ(encoding_for(Encoding::kInt8, block), is_smaller ? Encoding::kInt8 : Encoding::kBf16);
    EXPECT_EQ(encoding_for(Encoding::kF32, block), Encoding::kF32);
    EXPECT_EQ(encoding_for(Encoding::kBf16, block), Encoding::kBf16);
  }
}

TEST(Encoding, LosesNoMoreThanItsStep) {
  const std::vector<float> values = normal(1000);
  EXPECT_EQ(through({Encoding::kF32, 1000, 7}, values), values);
  const std::vector<float> half = through({Encoding::kBf16, 1000, 7}, values);
  const std::vector<float> bytes = through({Encoding::kInt8, 1000, 7}, values);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_LE(std::abs(half[i] - values[i]), std::abs(values[i]) / 256);
    float largest = 0;
    for (size_t j = i / 7 * 7; j < std::min<size_t>(1000, i / 7 * 7 + 7); ++j) {
      largest = std::max(largest, std::abs(values[j]));
    }
    EXPECT_LE(std::abs(bytes[i] - values[i]), largest / 127 * 0.5001f) << i;
  }
}

TEST(Encoding, KeepsZerosAndWhatIsNotFinite) {
  const float kNan = std::numeric_limits<float>::quiet_NaN();
  const float kInfinity = std::numeric_limits<float>::infinity();
  for (const Encoding encoding : {Encoding::kBf16, Encoding::kInt8}) {
    EXPECT_EQ(through({encoding, 3, 3}, {0, 0, 0}), (std::vector<float>{0, 0, 0}));
    EXPECT_TRUE(std::isnan(through({encoding, 2, 2}, {1, kNan})[1]));
    EXPECT_FALSE(std::isfinite(through({encoding, 2, 2}, {1, kInfinity})[1]));
  }
}

// The sum of all that was sent is the sum of all gradients, but for one last rounding.
TEST(Encoding, LosesNothingOverManyPushesWithFeedback) {
  for (const Encoding encoding : {Encoding::kBf16, Encoding::kInt8}) {
    const EncodedFloats what{encoding, 100, 50};
    std::vector<float> residual(100);
    std::vector<double> given(100), sent(100);
    for (uint64_t step = 0; step < 300; ++step) {
      const std::vector<float> gradient = normal(100, step);
      std::vector<std::byte> bytes(encoded_bytes(what));
      encode_with_feedback(what, gradient, residual, bytes);
      std::vector<float> back(100);
      decode(what, bytes, back);
      for (size_t i = 0; i < 100; ++i) {
        given[i] += static_cast<double>(gradient[i]);
        sent[i] += static_cast<double>(back[i]);
      }
    }
    for (size_t i = 0; i < 100; ++i) {
      EXPECT_NEAR(given[i] - sent[i], static_cast<double>(residual[i]), 1e-4);
      EXPECT_LT(std::abs(residual[i]), 0.1f);
    }
  }
}

TEST(Encoding, ForgetsAResidualThatIsNotFinite) {
  std::vector<float> residual(2);
  std::vector<std::byte> bytes(4);
  const std::vector<float> bad = {std::numeric_limits<float>::infinity(), 1.0f};
  encode_with_feedback({Encoding::kBf16, 2, 2}, bad, residual, bytes);
  EXPECT_EQ(residual, (std::vector<float>{0, 0}));
}

TEST(Residuals, AreKeptForEveryRangeAndRow) {
  const Catalog catalog{.tensors = {{.name = "w", .count = 20}},
                        .tables = {{.name = "t", .dim = 2}}};
  Residuals residuals(catalog);
  const std::vector<float> gradient(10, 1.0f / 3);
  const auto first = residuals.encode_range(0, 10, gradient, Encoding::kBf16);
  const auto other = residuals.encode_range(0, 0, gradient, Encoding::kBf16);
  const auto second = residuals.encode_range(0, 10, gradient, Encoding::kBf16);
  EXPECT_EQ(first, other);
  EXPECT_NE(first, second);
  const std::vector<float> rows = {1.0f / 3, 1.0f / 3, 1.0f / 3, 1.0f / 3};
  const std::vector<uint64_t> keys = {5, 9}, later = {7, 9};
  residuals.encode_rows({.keys = keys, .gradients = rows, .encoding = Encoding::kBf16});
  const auto encoded = residuals.encode_rows(
      {.keys = later, .clock = 1, .gradients = rows, .encoding = Encoding::kBf16});
  EXPECT_TRUE(encoded.selection.empty());
  std::vector<float> sent(4);
  decode({Encoding::kBf16, 4, 2}, encoded.floats, sent);
  EXPECT_EQ(sent[0], sent[1]);  // key 7 is new
  EXPECT_NE(sent[0], sent[2]);  // key 9 has a residual
}

TEST(RowSelection, HasTheRowsThatAreSomewhereAboveTheThreshold) {
  std::vector<float> values(2 * 70);
  values[2 * 3 + 1] = -1.5f;
  values[2 * 64] = std::numeric_limits<float>::quiet_NaN();
  values[2 * 69 + 1] = 1.0f;
  const RowSelection selection = rows_above(values, 2, 1);
  EXPECT_EQ(selection, (RowSelection{uint64_t{1} << 3, 1}));
  EXPECT_EQ(selected_count(selection), 2u);
  std::vector<int> list(70);
  std::iota(list.begin(), list.end(), 0);
  EXPECT_EQ(selected(std::span<const int>(list), selection), (std::vector<int>{3, 64}));
  EXPECT_TRUE(rows_above({}, 2, 1).empty());
}

TEST(RowSelection, IsThatOfAListOfItsLength) {
  EXPECT_TRUE(is_selection_of({}, 0));
  EXPECT_FALSE(is_selection_of({0}, 0));
  EXPECT_TRUE(is_selection_of({uint64_t{1} << 63}, 64));
  EXPECT_TRUE(is_selection_of({0, 1}, 65));
  EXPECT_FALSE(is_selection_of({0, 2}, 65));
  EXPECT_FALSE(is_selection_of({0}, 65));
}

// The sum that reaches servers is that of all gradients, but for what is still kept back.
TEST(Residuals, KeepRowsBackUntilTheyAreAboveTheThreshold) {
  const Catalog catalog{.tables = {{.name = "t", .dim = 1}}};
  Residuals residuals(catalog);
  const std::vector<uint64_t> keys = {5, 9};
  std::vector<double> given(2), sent(2);
  for (uint64_t step = 0; step < 200; ++step) {
    const std::vector<float> gradients = normal(2, step);
    const auto encoded = residuals.encode_rows(
        {.keys = keys, .clock = step, .gradients = gradients, .threshold = 2});
    std::vector<float> floats(encoded.floats.size() / sizeof(float));
    decode({Encoding::kF32, floats.size(), 1}, encoded.floats, floats);
    for (size_t i = 0, next = 0; i < 2; ++i) {
      given[i] += static_cast<double>(gradients[i]);
      if (!is_selected(encoded.selection, i)) continue;
      EXPECT_GT(std::abs(floats[next]), 2);
      sent[i] += static_cast<double>(floats[next++]);
    }
    for (size_t i = 0; i < 2; ++i) EXPECT_LT(std::abs(given[i] - sent[i]), 2.001);
  }
  EXPECT_NE(sent[0], 0);
}

}  // namespace
}  // namespace lockstep::server
