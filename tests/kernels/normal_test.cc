// Normal numbers made many at a time, compared with Random::normal(), on every instruction set.
#include "kernels/ops/normal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "common/base/random.h"
#include "common/base/sha256.h"
#include "kernels/device/parallel.h"
#include "kernels/ops/isa_table.h"

namespace lockstep::kernels {
namespace {

constexpr uint64_t kSeed = 0x123456789ABCDEF0;
constexpr uint64_t kStream = 0xFEDCBA9876543210;

struct Numbers {
  uint64_t first = 0;
  int64_t count = 1;
  uint64_t stream = kStream;
  float deviation = 1.0f;
};

std::vector<float> reference(const Numbers& wanted) {
  Random random(kSeed, wanted.stream);
  random.seek(2 * wanted.first);
  std::vector<float> values(static_cast<size_t>(wanted.count));
  for (float& value : values) value = wanted.deviation * random.normal();
  return values;
}

std::vector<float> filled(const IsaTable& isa, const Numbers& wanted) {
  std::vector<float> values(static_cast<size_t>(wanted.count));
  isa.fill_normal({.out = values.data(),
                   .count = wanted.count,
                   .seed = kSeed,
                   .stream = wanted.stream,
                   .first = wanted.first,
                   .deviation = wanted.deviation});
  return values;
}

// Returns by how many floats two numbers are apart; 0 and -0 are one number.
int64_t ulps(float a, float b) {
  const auto place = [](float x) {
    const auto bits = std::bit_cast<int32_t>(x);
    return bits < 0 ? -int64_t{bits & 0x7FFFFFFF} : int64_t{bits};
  };
  return std::abs(place(a) - place(b));
}

// Returns how many numbers differ; none may by more than an ulp.
int64_t differing(const std::vector<float>& ours, const std::vector<float>& theirs) {
  EXPECT_EQ(ours.size(), theirs.size());
  int64_t count = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    const int64_t apart = ulps(ours[i], theirs[i]);
    EXPECT_LE(apart, 1) << i << ": " << ours[i] << ", not " << theirs[i];
    if (apart > 1) break;
    count += apart;
  }
  return count;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(
      a, b, {}, [](float x) { return std::bit_cast<uint32_t>(x); },
      [](float x) { return std::bit_cast<uint32_t>(x); });
}

TEST(FillNormal, AgreesWithTheReferenceAndBetweenInstructionSets) {
  // Even, odd, below 2^32 up to above it (of numbers, and of blocks of two), and far away.
  const uint64_t beginnings[] = {0,
                                 1,
                                 987'654'321,
                                 (uint64_t{1} << 32) - 500'001,
                                 (uint64_t{1} << 33) - 500'000,
                                 (uint64_t{1} << 62) + 3};
  for (const uint64_t first : beginnings) {
    const Numbers million{.first = first, .count = 1'000'000};
    const std::vector<float> theirs = reference(million);
    const std::vector<float> ours = filled(*supported_isas().front(), million);
    EXPECT_LE(differing(ours, theirs), 1) << "from " << first;
    for (const IsaTable* isa : supported_isas()) {
      EXPECT_TRUE(same_bits(filled(*isa, million), ours)) << isa->name << " from " << first;
    }
  }
}

TEST(FillNormal, MultipliesByTheDeviationAfterRounding) {
  const Numbers wanted{.count = 10'000, .deviation = 0.02f};
  EXPECT_EQ(differing(filled(*supported_isas().back(), wanted), reference(wanted)), 0);
}

// For machines with other instruction sets, compilers and C libraries.
TEST(FillNormal, MakesTheSameBitsOnEveryMachine) {
  std::vector<float> values(1'000'000);
  fill_normal({.out = values.data(), .count = std::ssize(values), .seed = 1});
  const auto* bytes = reinterpret_cast<const char*>(values.data());
  EXPECT_EQ(hex(sha256({bytes, values.size() * sizeof(float)})),
            "72e1023fce5ce3c245a180e94aa9e8895360b378dbb1948f47a1ef281b1fad4a");
}

// Numbers so close to the middle between two floats that one contracted a*b+c changes them; a
// search found 24 in 10^9.
TEST(FillNormal, IsNotContracted) {
  const struct {
    uint64_t position;
    uint32_t bits;
  } cases[] = {{21'210'919, 0xb10fabdb},  {108'066'780, 0x3eacaf7d}, {141'579'392, 0xb13e3a31},
               {168'439'030, 0x3db1c97f}, {184'748'868, 0xb73604c3}, {300'705'755, 0xb2d5080a},
               {309'097'234, 0x39a791f0}, {335'801'134, 0x3747892b}, {372'391'500, 0x39a46c44},
               {391'624'369, 0x3ecad9c0}, {785'199'673, 0x3f4dc245}, {872'359'174, 0xbdc97c20}};
  for (const auto& c : cases) {
    for (const IsaTable* isa : supported_isas()) {
      float value = 0;
      isa->fill_normal({.out = &value, .count = 1, .seed = 1, .first = c.position});
      EXPECT_EQ(std::bit_cast<uint32_t>(value), c.bits) << isa->name << " at " << c.position;
    }
  }
}

TEST(FillNormal, DoesNotDependOnHowARangeIsSplit) {
  const Numbers whole{.first = 77, .count = 5'000};
  for (const IsaTable* isa : supported_isas()) {
    const std::vector<float> expected = filled(*isa, whole);
    std::vector<float> values(expected.size() + 1, 7.0f);
    Random random(5);
    for (int64_t at = 0; at < whole.count;) {
      const auto drawn = static_cast<int64_t>(random.below(100));  // also 0
      const int64_t count = std::min(drawn, whole.count - at);
      isa->fill_normal({.out = values.data() + at,
                        .count = count,
                        .seed = kSeed,
                        .stream = kStream,
                        .first = whole.first + static_cast<uint64_t>(at)});
      at += count;
      ASSERT_EQ(values[static_cast<size_t>(at)], 7.0f) << isa->name << ": written past the end";
    }
    values.pop_back();
    EXPECT_TRUE(same_bits(values, expected)) << isa->name;
  }
}

TEST(FillNormal, DoesNotDependOnThreads) {
  const Numbers wanted{.first = 1, .count = 100'003};
  const std::vector<float> one = filled(*supported_isas().front(), wanted);
  for (const int count : {2, 3, 7}) {
    set_threads(count);
    EXPECT_TRUE(same_bits(filled(*supported_isas().front(), wanted), one)) << count;
  }
  set_threads(1);
}

// Each bound is 4.5 standard deviations of its moment.
TEST(FillNormal, HasTheMomentsOfANormal) {
  const std::vector<float> values = filled(*supported_isas().front(), {.count = 4'000'000});
  double sums[4] = {};
  for (const float value : values) {
    const auto x = static_cast<double>(value);
    for (double power = x; double& sum : sums) {
      sum += power;
      power *= x;
    }
  }
  const auto n = static_cast<double>(values.size());
  EXPECT_NEAR(sums[0] / n, 0.0, 4.5 * std::sqrt(1 / n));
  EXPECT_NEAR(sums[1] / n, 1.0, 4.5 * std::sqrt(2 / n));
  EXPECT_NEAR(sums[2] / n, 0.0, 4.5 * std::sqrt(15 / n));
  EXPECT_NEAR(sums[3] / n, 3.0, 4.5 * std::sqrt(96 / n));
}

// Philox maps counters to blocks one to one, so each block is found at one counter.
struct Counter {
  uint64_t index = 0;
  uint64_t stream = 0;
};

Counter counter_of(std::array<uint32_t, 4> block) {
  constexpr uint32_t kFactors[] = {0xD2511F53, 0xCD9E8D57};
  // Newton's iteration: each step doubles the number of correct bits, of which x has three.
  const auto inverse = [](uint32_t x) {
    uint32_t y = x;
    for (int i = 0; i < 4; ++i) y *= 2 - x * y;
    return y;
  };
  const auto high = [](uint32_t a, uint32_t b) {
    return static_cast<uint32_t>((uint64_t{a} * b) >> 32);
  };
  for (uint32_t round = 10; round-- > 0;) {
    const uint32_t key0 = static_cast<uint32_t>(kSeed) + round * 0x9E3779B9;
    const uint32_t key1 = static_cast<uint32_t>(kSeed >> 32) + round * 0xBB67AE85;
    const uint32_t c0 = block[3] * inverse(kFactors[0]);
    const uint32_t c2 = block[1] * inverse(kFactors[1]);
    block = {c0, block[0] ^ high(kFactors[1], c2) ^ key0, c2,
             block[2] ^ high(kFactors[0], c0) ^ key1};
  }
  return {block[0] | uint64_t{block[1]} << 32, block[2] | uint64_t{block[3]} << 32};
}

// Returns where to find the number that is made of these two draws, at a position in range.
Numbers place_of(uint32_t draw1, uint32_t draw2) {
  for (uint32_t rest = 0;; ++rest) {
    const Counter counter = counter_of({draw1, draw2, rest, 0});
    if (counter.index < uint64_t{1} << 61) {
      return {.first = 2 * counter.index, .count = 2, .stream = counter.stream};
    }
  }
}

// The first draws are those of the smallest and the largest radius, and those around powers of two
// and around sqrt(1/2), where the logarithm changes its exponent. The second ones are around
// multiples of a quarter turn.
TEST(FillNormal, IsWithinAnUlpWhereDrawsAreExtreme) {
  std::vector<uint32_t> radii = {0xB504F332, 0xB504F333, 0xB504F334, 0x5A827998, 0x5A827999};
  for (const uint32_t middle : {0x0u, 0x2u, 0xFFFFu, 0x7FFFFFFFu, 0xFFFFFFFEu}) {
    for (const uint32_t step : {~0u, 0u, 1u}) radii.push_back(middle + step);
  }
  std::vector<uint32_t> turns;
  for (const uint32_t quarter : {0x0u, 0x40000000u, 0x80000000u, 0xC0000000u}) {
    for (const uint32_t step : {~1u, ~0u, 0u, 1u, 2u}) turns.push_back(quarter + step);
  }
  int64_t differ = 0;
  for (const uint32_t radius : radii) {
    for (const uint32_t turn : turns) {
      const Numbers place = place_of(radius, turn);
      Random random(kSeed, place.stream);
      random.seek(2 * place.first);
      ASSERT_EQ(random.next_u32(), radius);
      ASSERT_EQ(random.next_u32(), turn);
      SCOPED_TRACE(testing::Message() << "draws " << radius << ", " << turn);
      const std::vector<float> ours = filled(*supported_isas().front(), place);
      differ += differing(ours, reference(place));
      for (const IsaTable* isa : supported_isas()) {
        EXPECT_TRUE(same_bits(filled(*isa, place), ours)) << isa->name;
      }
    }
  }
  EXPECT_EQ(differ, 0);
  EXPECT_NEAR(filled(*supported_isas().front(), place_of(0, 0)).front(), 6.6604, 1e-4);
  EXPECT_EQ(filled(*supported_isas().front(), place_of(0xFFFFFFFF, 0)).front(), 0.0f);
}

}  // namespace
}  // namespace lockstep::kernels
