#include "agent/parallel/offload/tensor_pieces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/base/random.h"

namespace lockstep::parallel {
namespace {

using kernels::ElementIndex;
using kernels::UpdatedTensor;

// Memory for tensors, of which only the addresses matter.
struct Memory {
  std::vector<float> parameters = std::vector<float>(10'000);
  std::vector<float> gradients = parameters;
  std::vector<float> state = parameters;
  std::vector<kernels::Bf16> copies = std::vector<kernels::Bf16>(10'000);

  FarTensor tensor(int64_t first, int64_t count, const ElementIndex& index) {
    return {.tensor = {.parameter = parameters.data() + 2 * first,
                       .gradient = gradients.data() + 3 * first,
                       .states = {nullptr, state.data() + first},
                       .copy = copies.data() + first,
                       .count = count,
                       .weight_decay = static_cast<float>(first),
                       .index = index},
            .first = first};
  }
};

// Everything that an op reads about an element.
struct Element {
  const float* parameter;
  const float* gradient;
  const float* states[2];
  const void* copy;
  float weight_decay;
  int64_t index;
  int64_t place;

  bool operator==(const Element&) const = default;
};

void append_elements(const FarTensor& far, std::vector<Element>& elements) {
  const UpdatedTensor& t = far.tensor;
  for (int64_t i = 0; i < t.count; ++i) {
    elements.push_back({.parameter = t.parameter + i,
                        .gradient = t.gradient + i,
                        .states = {t.states[0], t.states[1] + i},
                        .copy = static_cast<kernels::Bf16*>(t.copy.data) + i,
                        .weight_decay = t.weight_decay,
                        .index = index_of(t.index, i),
                        .place = far.first + i});
  }
}

TEST(TensorPieces, HaveEveryElementOnceAndInOrder) {
  Memory memory;
  Random random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<FarTensor> tensors;
    std::vector<Element> expected;
    for (int64_t first = 0; first < 2000;) {
      const auto count = static_cast<int64_t>(1 + random.below(300));
      const auto columns = static_cast<int64_t>(random.below(2) * random.below(40));
      const ElementIndex index{.first = static_cast<int64_t>(random.below(100'000)),
                               .columns = columns,
                               .stride = columns == 0 ? 0 : columns + 11};
      tensors.push_back(memory.tensor(first, count, index));
      append_elements(tensors.back(), expected);
      first += count + static_cast<int64_t>(random.below(25));
    }
    const auto room = static_cast<int64_t>(1 + random.below(500));
    std::vector<Element> found;
    int64_t end = 0;
    for (const TensorPiece& piece : cut_tensors(tensors, room)) {
      ASSERT_LE(piece.range.count, room);
      ASSERT_GE(piece.range.first, end);
      ASSERT_FALSE(piece.parts.empty());
      end = piece.range.first + piece.range.count;
      ASSERT_EQ(piece.parts.front().first, piece.range.first);
      ASSERT_EQ(piece.parts.back().first + piece.parts.back().tensor.count, end);
      for (const FarTensor& part : piece.parts) append_elements(part, found);
    }
    ASSERT_EQ(found, expected) << "round " << round << ", room " << room;
  }
}

std::vector<FarRange> ranges_of(const std::vector<TensorPiece>& pieces) {
  std::vector<FarRange> ranges;
  for (const TensorPiece& piece : pieces) ranges.push_back(piece.range);
  return ranges;
}

TEST(TensorPieces, AreFullExceptBeforeAGapAndAtTheEnd) {
  Memory memory;
  const std::vector<FarTensor> tensors{
      memory.tensor(0, 250, {}),
      memory.tensor(256, 44, {}),
      memory.tensor(300 + kPieceGapMax, 10, {}),  // bridged
      memory.tensor(1000, 100, {}),
  };
  EXPECT_EQ(ranges_of(cut_tensors(tensors, 100)),
            (std::vector<FarRange>{{0, 100}, {100, 100}, {200, 100}, {316, 10}, {1000, 100}}));
  EXPECT_EQ(ranges_of(cut_tensors(tensors, 10'000)),
            (std::vector<FarRange>{{0, 326}, {1000, 100}}));
  EXPECT_TRUE(cut_tensors({}, 100).empty());
  EXPECT_TRUE(cut_tensors(std::vector<FarTensor>{memory.tensor(5, 0, {})}, 100).empty());
}

TEST(TensorPieces, CutARowIntoItsRestAndTheRowsAfterIt) {
  Memory memory;
  const FarTensor rows = memory.tensor(0, 50, {.first = 1000, .columns = 10, .stride = 100});
  const std::vector<TensorPiece> pieces = cut_tensors({&rows, 1}, 24);
  ASSERT_EQ(pieces.size(), 3U);
  ASSERT_EQ(pieces[1].parts.size(), 2U);
  EXPECT_EQ(pieces[1].parts[0].tensor.count, 6);
  EXPECT_EQ(pieces[1].parts[0].tensor.index.first, 1204);
  EXPECT_EQ(pieces[1].parts[0].tensor.index.columns, 0);
  EXPECT_EQ(pieces[1].parts[1].tensor.count, 18);
  EXPECT_EQ(pieces[1].parts[1].tensor.index.first, 1300);
  EXPECT_EQ(pieces[1].parts[1].tensor.index.columns, 10);
}

}  // namespace
}  // namespace lockstep::parallel
