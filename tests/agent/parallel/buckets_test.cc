#include "agent/parallel/buckets.h"

#include <gtest/gtest.h>

namespace lockstep::parallel {
namespace {

const ModelConfig kConfig{2, 32, 2, 32, 256};

TEST(Buckets, CoverTheArenaOnceFromTheEndToTheBeginning) {
  const ParameterArena arena = parameter_arena(kConfig, whole_model(kConfig));
  for (const int64_t bytes : {1, 1000, 32 << 10, 1 << 30}) {
    const std::vector<Bucket> buckets = make_buckets(arena, bytes);
    ASSERT_FALSE(buckets.empty());
    int64_t end = arena.count;
    int64_t next_id = static_cast<int64_t>(arena.entries.size()) - 1;
    for (const Bucket& bucket : buckets) {
      EXPECT_EQ(bucket.last_id, next_id);
      EXPECT_LE(bucket.first_id, bucket.last_id);
      EXPECT_EQ(bucket.offset + bucket.count, end);
      EXPECT_EQ(bucket.offset, arena.find(bucket.first_id)->offset);
      end = bucket.offset;
      next_id = bucket.first_id - 1;
    }
    EXPECT_EQ(end, 0);
    EXPECT_EQ(next_id, -1);
  }
}

TEST(Buckets, AreNoSmallerThanAskedButForTheLast) {
  const ParameterArena arena = parameter_arena(kConfig, whole_model(kConfig));
  const std::vector<Bucket> buckets = make_buckets(arena, 32 << 10);
  ASSERT_GE(buckets.size(), 3u);
  for (size_t i = 0; i + 1 < buckets.size(); ++i) EXPECT_GE(buckets[i].count * 4, 32 << 10);
}

TEST(Buckets, AreOneWhereAllFits) {
  const ParameterArena arena = parameter_arena(kConfig, whole_model(kConfig));
  EXPECT_EQ(make_buckets(arena, 1 << 30).size(), 1u);
}

}  // namespace
}  // namespace lockstep::parallel
