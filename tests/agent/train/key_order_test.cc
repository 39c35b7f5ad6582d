#include "agent/train/clicks/key_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "common/base/random.h"

namespace lockstep::train {
namespace {

void expect_sorted(KeyOrder& order, const std::vector<uint64_t>& features) {
  std::vector<uint64_t> expected = features;
  std::ranges::sort(expected);
  expected.erase(std::ranges::unique(expected).begin(), expected.end());
  std::vector<uint64_t> keys{7};
  std::vector<uint32_t> slots{7};
  order.sort(features, keys, slots);
  ASSERT_EQ(keys, expected);
  ASSERT_EQ(slots.size(), features.size());
  for (size_t i = 0; i < features.size(); ++i) ASSERT_EQ(keys[slots[i]], features[i]) << i;
}

// Hashes, small numbers, one digit alone, and lists that are sorted by comparing.
TEST(KeyOrder, FindsTheDistinctKeysOfAnyFeatures) {
  KeyOrder order;
  Random random(5);
  for (const size_t count : {0u, 1u, 2u, 1023u, 1024u, 5000u, 20000u}) {
    for (const int shift : {0, 9, 31, 53, 60}) {
      SCOPED_TRACE(testing::Message() << count << " >> " << shift);
      std::vector<uint64_t> features;
      for (size_t i = 0; i < count; ++i) features.push_back(random.next_u64() >> shift);
      ASSERT_NO_FATAL_FAILURE(expect_sorted(order, features));
    }
  }
}

TEST(KeyOrder, KnowsTheEndsOfTheRange) {
  KeyOrder order;
  std::vector<uint64_t> features(2000, std::numeric_limits<uint64_t>::max());
  ASSERT_NO_FATAL_FAILURE(expect_sorted(order, features));
  features[1] = 0;
  features[1999] = uint64_t{1} << 63;
  ASSERT_NO_FATAL_FAILURE(expect_sorted(order, features));
  const std::vector<uint64_t> equal(2000, 42);
  ASSERT_NO_FATAL_FAILURE(expect_sorted(order, equal));
}

}  // namespace
}  // namespace lockstep::train
