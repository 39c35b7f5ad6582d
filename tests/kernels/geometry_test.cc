// Tests how kernels are mapped to threads: each element once, in shapes that every GPU supports.
#include "kernels/ops/geometry.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/ops/embedding_geometry.h"
#include "kernels/ops/tensor_batch.h"

namespace lockstep::kernels {

namespace {

TEST(Geometry, ElementsAreCoveredWithLessThanABlockToSpare) {
  for (const int64_t count :
       {int64_t{0}, int64_t{1}, int64_t{255}, int64_t{1024}, int64_t{1025}, int64_t{1} << 36}) {
    for (const int per_thread : {1, 4, 8}) {
      const LaunchShape shape = elements_shape("x", count, per_thread);
      const int64_t covered = shape.blocks.x * shape.threads * per_thread;
      EXPECT_TRUE(is_launchable(shape));
      EXPECT_GE(covered, count);
      EXPECT_LT(covered - count, int64_t{shape.threads} * per_thread);
      EXPECT_EQ(is_empty(shape), count == 0);
    }
  }
}

TEST(Geometry, EveryRowHasItsWarp) {
  for (const int64_t rows : {0, 1, 4, 5, 65536}) {
    const LaunchShape shape = warp_rows_shape("x", rows);
    const int64_t warps = shape.blocks.x * shape.threads / kWarpThreads;
    EXPECT_TRUE(is_launchable(shape));
    EXPECT_GE(warps, rows);
    EXPECT_LT(warps - rows, kRowsOfBlock);
  }
}

TEST(Geometry, BlocksOfRowsGrowWithTheColumnsAndHoldTheirSums) {
  int before = 0;
  for (const int64_t columns : {1, 1000, 5000, 50304, 1000000}) {
    const LaunchShape shape = block_rows_shape("x", 7, columns, 8);
    EXPECT_TRUE(is_launchable(shape));
    EXPECT_EQ(shape.blocks, (Extent{.x = 7}));
    EXPECT_GE(shape.threads, before);
    EXPECT_EQ(shape.shared_bytes, static_cast<size_t>(shape.threads / kWarpThreads) * 8);
    before = shape.threads;
  }
  EXPECT_EQ(before, 512);
  EXPECT_EQ(block_rows_shape("x", 7, 1, 8).threads, kWarpThreads);
}

TEST(Geometry, StripsCoverTheColumnsOfEveryRow) {
  for (const int64_t columns : {1, 128, 769, 50304}) {
    for (const int per_thread : {1, 8}) {
      const LaunchShape shape = row_strips_shape("x", 100000, columns, per_thread);
      EXPECT_TRUE(is_launchable(shape));
      EXPECT_EQ(shape.blocks.x, 100000);
      const int64_t strip = int64_t{shape.threads} * per_thread;
      EXPECT_GE(shape.blocks.y * strip, columns);
      EXPECT_LT((shape.blocks.y - 1) * strip, columns);
    }
  }
}

TEST(Geometry, ColumnSumsHaveRoomForEveryWarp) {
  for (const int per_lane : {1, 4, 8}) {
    for (const int sums : {1, 2}) {
      const LaunchShape shape = column_sums_shape("x", 1600, 128, per_lane, sums);
      EXPECT_TRUE(is_launchable(shape));
      EXPECT_GE(shape.blocks.x * kWarpThreads * per_lane, 1600);
      EXPECT_EQ(shape.blocks.y, 128);
      EXPECT_EQ(shape.shared_bytes,
                static_cast<size_t>(shape.threads * per_lane * sums) * sizeof(float));
    }
  }
}

TEST(Geometry, PartsAreAsManyAsRowsAreWorth) {
  EXPECT_EQ(row_parts(0, 128), 1);
  EXPECT_EQ(row_parts(1, 128), 1);
  EXPECT_EQ(row_parts(65, 128), 2);
  EXPECT_EQ(row_parts(65536, 128), 128);
  EXPECT_EQ(norm_parts(0, 528), 1);
  EXPECT_EQ(norm_parts(1024, 528), 128);
  EXPECT_EQ(norm_parts(65536, 528), 528);
  const LaunchShape norm = norm_backward_shape("norm", 768, 528, 8);
  EXPECT_EQ(norm.blocks, (Extent{.x = 528}));
  EXPECT_EQ(norm.threads, 96);
  EXPECT_EQ(norm.shared_bytes, 3u * 2 * 4 * sizeof(float));
  EXPECT_EQ(add_parts_shape(70, 2).blocks, (Extent{.x = 3, .y = 2}));
}

TEST(EmbeddingGeometry, SortsAsManyDigitsAsTheTokensHave) {
  const auto passes = [](int64_t vocabulary) {
    return token_sort_plan({.rows = 1, .vocabulary = vocabulary}).passes;
  };
  EXPECT_EQ(passes(0), 1);
  EXPECT_EQ(passes(256), 1);
  EXPECT_EQ(passes(511), 1);
  EXPECT_EQ(passes(512), 2) << "rows that are not here have the token 512";
  EXPECT_EQ(passes(50304), 2);
  EXPECT_EQ(passes((1 << 18) - 1), 2);
  EXPECT_EQ(passes(1 << 18), 3);
  EXPECT_EQ(passes(INT32_MAX), 4);
}

TEST(EmbeddingGeometry, CoversTheRowsInShapesThatEveryGpuTakes) {
  for (const int64_t rows : {int64_t{1}, int64_t{1024}, int64_t{1025}, int64_t{65536},
                             int64_t{1} << 24, int64_t{INT32_MAX}}) {
    const EmbeddingTokens tokens{.rows = rows, .vocabulary = 50304};
    const TokenSortPlan plan = token_sort_plan(tokens);
    EXPECT_EQ(plan.rows_at_once % kTokenSortThreads, 0);
    EXPECT_LE(plan.counting_shape.blocks.x, 64);
    EXPECT_EQ(plan.placing_shape.blocks, plan.counting_shape.blocks);
    EXPECT_GE(plan.counting_shape.blocks.x * plan.rows_at_once, rows);
    EXPECT_LT((plan.counting_shape.blocks.x - 1) * plan.rows_at_once, rows);
    EXPECT_GE(token_parts(rows) * kTokenPart, rows);
    for (const int per_lane : {1, 4, 8}) {
      const LaunchShape parts = token_parts_shape(tokens, 1600, per_lane);
      const LaunchShape joins = token_joins_shape(tokens, 1600, per_lane);
      EXPECT_GE(parts.blocks.x * kTokenPartWarps, token_parts(rows));
      EXPECT_GE(parts.blocks.y * kWarpThreads * per_lane, 1600);
      EXPECT_EQ(joins.blocks, (Extent{.x = token_parts(rows), .y = parts.blocks.y}));
      EXPECT_EQ(joins.threads, kColumnThreads);
      for (const LaunchShape& shape : {plan.counting_shape, plan.placing_shape, parts, joins}) {
        EXPECT_TRUE(is_launchable(shape)) << shape.name;
      }
    }
  }
}

TEST(EmbeddingGeometry, KeepsItsWorkspaceApart) {
  const EmbeddingTokens tokens{.rows = 65536, .vocabulary = 50304};
  const TokenWorkspace at = token_workspace(tokens, 768);
  EXPECT_EQ(at.sums, 0);
  EXPECT_EQ(at.unsorted, 65536 * 768 / 4);
  EXPECT_EQ(at.sorted - at.unsorted, 65536 * 8);
  EXPECT_EQ(at.counts - at.sorted, 65536 * 8);
  EXPECT_EQ(at.bytes - at.counts, 64 * 512 * 4);
  EXPECT_EQ(embedding_backward_workspace(tokens, 768, DeviceType::kCuda), at.bytes);
  EXPECT_EQ(embedding_backward_workspace(tokens, 768, DeviceType::kCpu), 0);
  // Rows and counts are aligned for reads of 8 and 4 bytes, also for odd sizes.
  const TokenWorkspace odd = token_workspace({.rows = 33, .vocabulary = 3}, 7);
  EXPECT_EQ(odd.unsorted % 8, 0);
  EXPECT_EQ(odd.sorted % 8, 0);
  EXPECT_EQ(odd.counts % 4, 0);
}

TEST(TensorBatch, FindsTheTensorOfEveryBlock) {
  TensorBatch<int, 5> batch = {};
  const std::vector<int64_t> blocks = {3, 0, 1, 7, 2};
  for (size_t i = 0; i < blocks.size(); ++i) append(batch, static_cast<int>(i), blocks[i]);
  EXPECT_EQ(batch.count, 4);  // one tensor has no blocks
  EXPECT_FALSE(is_full(batch));
  EXPECT_EQ(batch_shape("x", batch).blocks.x, 13);
  int64_t block = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (int64_t j = 0; j < blocks[i]; ++j, ++block) {
      const BatchPlace place = find_tensor(batch, block);
      EXPECT_EQ(batch.tensors[place.tensor], static_cast<int>(i));
      EXPECT_EQ(place.block, j);
    }
  }
  append(batch, 9, 1);
  EXPECT_TRUE(is_full(batch));
}

TEST(TensorBatch, WithoutTensorsStartsNothing) {
  const TensorBatch<int, 5> batch = {};
  EXPECT_TRUE(is_empty(batch_shape("x", batch)));
}

}  // namespace

}  // namespace lockstep::kernels
