#include "common/layout/tensor_box.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/base/random.h"

namespace lockstep {
namespace {

using Boxes = std::vector<TensorBox>;

// The elements of boxes, row by row and one box after the other.
std::vector<int64_t> elements_of(const Boxes& boxes, int64_t columns) {
  std::vector<int64_t> elements;
  for (const TensorBox& box : boxes) {
    for (int64_t row = box.row_begin; row < box.row_end; ++row) {
      for (int64_t column = box.column_begin; column < box.column_end; ++column) {
        elements.push_back(row * columns + column);
      }
    }
  }
  return elements;
}

TEST(BoxesOf, AreTheFewestForOneRun) {
  const struct {
    ShardRun run;
    int64_t columns;
    Boxes boxes;
  } cases[] = {
      {{.global = 0, .count = 12}, 4, {{0, 3, 0, 4}}},
      {{.global = 4, .count = 4}, 4, {{1, 2, 0, 4}}},
      {{.global = 1, .count = 2}, 4, {{0, 1, 1, 3}}},
      {{.global = 2, .count = 2}, 4, {{0, 1, 2, 4}}},
      {{.global = 2, .count = 6}, 4, {{0, 1, 2, 4}, {1, 2, 0, 4}}},
      {{.global = 3, .count = 11}, 4, {{0, 1, 3, 4}, {1, 3, 0, 4}, {3, 4, 0, 2}}},
      {{.global = 3, .count = 2}, 4, {{0, 1, 3, 4}, {1, 2, 0, 1}}},
      {{.global = 5, .count = 7}, 1, {{5, 12, 0, 1}}},
  };
  for (const auto& c : cases) EXPECT_EQ(boxes_of({&c.run, 1}, c.columns), c.boxes);
  EXPECT_TRUE(boxes_of({}, 4).empty());
}

TEST(BoxesOf, JoinsRunsOfTheSameColumns) {
  const std::vector<ShardRun> columns{
      {.global = 2, .count = 2}, {.global = 6, .count = 2}, {.global = 10, .count = 2}};
  EXPECT_EQ(boxes_of(columns, 4), (Boxes{{0, 3, 2, 4}}));
  const std::vector<ShardRun> adjacent{{.global = 0, .count = 3}, {.global = 3, .count = 5}};
  EXPECT_EQ(boxes_of(adjacent, 4), (Boxes{{0, 2, 0, 4}}));
  const std::vector<ShardRun> rows{{.global = 0, .count = 4}, {.global = 8, .count = 4}};
  EXPECT_EQ(boxes_of(rows, 4), (Boxes{{0, 1, 0, 4}, {2, 3, 0, 4}}));
}

TEST(BoxesOf, HaveTheElementsOfAnyRunsInTheirOrder) {
  Random random(3);
  for (int i = 0; i < 2000; ++i) {
    const auto columns = static_cast<int64_t>(1 + random.below(6));
    std::vector<ShardRun> runs;
    std::vector<int64_t> expected;
    for (int64_t at = 0; at < 40;) {
      const ShardRun run{.local = std::ssize(expected),
                         .global = at + static_cast<int64_t>(random.below(4)),
                         .count = static_cast<int64_t>(1 + random.below(12))};
      for (int64_t k = 0; k < run.count; ++k) expected.push_back(run.global + k);
      at = run.global + run.count;
      runs.push_back(run);
    }
    ASSERT_EQ(elements_of(boxes_of(runs, columns), columns), expected) << "case " << i;
  }
}

TEST(CoversOnce, FindsGapsAndOverlaps) {
  const struct {
    const char* what;
    Boxes boxes;
    bool covers;
  } cases[] = {
      {"the whole", {{0, 3, 0, 4}}, true},
      {"four quarters", {{2, 3, 3, 4}, {0, 2, 0, 3}, {0, 2, 3, 4}, {2, 3, 0, 3}}, true},
      {"nothing", {}, false},
      {"a gap", {{0, 2, 0, 4}}, false},
      {"a gap at a corner", {{0, 2, 0, 4}, {2, 3, 0, 3}}, false},
      {"the whole twice", {{0, 3, 0, 4}, {0, 3, 0, 4}}, false},
      {"an overlap", {{0, 2, 0, 4}, {1, 3, 0, 4}}, false},
      {"an overlap and a gap of one size", {{0, 2, 0, 4}, {1, 2, 0, 4}}, false},
      {"no rows", {{0, 3, 0, 4}, {1, 1, 0, 4}}, false},
      {"rows backwards", {{0, 3, 0, 4}, {2, 1, 0, 4}}, false},
      {"beyond the rows", {{0, 4, 0, 3}}, false},
      {"beyond the columns", {{0, 2, 0, 6}}, false},
      {"before the tensor", {{-1, 3, 0, 4}}, false},
  };
  for (const auto& c : cases) EXPECT_EQ(covers_once(c.boxes, 3, 4), c.covers) << c.what;
}

// Cuts a tensor into boxes, then moves one edge of one of them by one.
TEST(CoversOnce, FindsAnyEdgeThatMoved) {
  Random random(4);
  for (int i = 0; i < 1000; ++i) {
    Boxes boxes{{0, 7, 0, 9}};
    for (int cut = 0; cut < 6; ++cut) {
      TensorBox& box = boxes[random.below(boxes.size())];
      TensorBox rest = box;
      if (random.below(2) == 0 && box.rows() > 1) {
        rest.row_begin = box.row_end =
            box.row_begin + 1 +
            static_cast<int64_t>(random.below(static_cast<uint64_t>(box.rows() - 1)));
      } else if (box.columns() > 1) {
        rest.column_begin = box.column_end =
            box.column_begin + 1 +
            static_cast<int64_t>(random.below(static_cast<uint64_t>(box.columns() - 1)));
      } else {
        continue;
      }
      boxes.push_back(rest);
    }
    ASSERT_TRUE(covers_once(boxes, 7, 9)) << "case " << i;
    TensorBox& box = boxes[random.below(boxes.size())];
    int64_t* const edges[] = {&box.row_begin, &box.row_end, &box.column_begin, &box.column_end};
    *edges[random.below(4)] += random.below(2) == 0 ? 1 : -1;
    ASSERT_FALSE(covers_once(boxes, 7, 9)) << "case " << i;
  }
}

}  // namespace
}  // namespace lockstep
