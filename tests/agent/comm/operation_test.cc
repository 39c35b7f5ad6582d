#include "agent/comm/operation.h"

#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

std::shared_ptr<Group> pair_of_ranks() {
  auto group = std::make_shared<Group>();
  group->ranks = {0, 1};
  return group;
}

// Begins an operation with this much scratch memory: an in-place all_to_all of two blocks.
std::unique_ptr<Operation> begin(OperationPool& pool, const std::shared_ptr<Group>& group,
                                 size_t scratch) {
  static std::byte memory[1];
  auto operation = pool.take();
  operation->begin({.group = group,
                    .task = {.kind = Collective::kAllToAll,
                             .algorithm = Algorithm::kDirect,
                             .size = 2,
                             .count = static_cast<int64_t>(scratch / 2),
                             .type = DataType::kU8,
                             .in_place = true},
                    .input = memory,
                    .output = memory});
  EXPECT_EQ(operation->plan().scratch(), scratch);
  return operation;
}

void end(std::unique_ptr<Operation> operation) {
  OperationPool::give_back(std::move(operation));
}

// Takes all scratch memory out of the pool, and returns the bytes.
size_t drain(OperationPool& pool) {
  size_t bytes = 0;
  for (Scratch kept = pool.take_scratch(1); kept.bytes() > 1; kept = pool.take_scratch(1)) {
    bytes += kept.bytes();
  }
  return bytes;
}

TEST(OperationPool, GivesLargeMemoryToTheNextOperationThatItIsLargeEnoughFor) {
  const auto pool = std::make_shared<OperationPool>();
  const auto group = pair_of_ranks();
  auto large = begin(*pool, group, 8 * kMiB);
  auto small = begin(*pool, group, kMiB);
  const std::byte* at_large = large->at({.area = Area::kScratch});
  const std::byte* at_small = small->at({.area = Area::kScratch});
  end(std::move(large));
  end(std::move(small));
  small = begin(*pool, group, kMiB);
  large = begin(*pool, group, 2 * kMiB);
  EXPECT_EQ(small->at({.area = Area::kScratch}), at_small);
  EXPECT_EQ(large->at({.area = Area::kScratch}), at_large);
  EXPECT_EQ(drain(*pool), 0U);
  end(std::move(large));
  end(std::move(small));
  EXPECT_EQ(drain(*pool), 9 * kMiB);
}

TEST(OperationPool, KeepsNoMoreThanItsBoundAndTheLargest) {
  const auto pool = std::make_shared<OperationPool>();
  const auto group = pair_of_ranks();
  constexpr size_t kPart = OperationPool::kKeptScratchMax / 4;
  std::vector<std::unique_ptr<Operation>> under_way;
  for (size_t i = 0; i < 6; ++i) under_way.push_back(begin(*pool, group, kPart + i * kMiB));
  for (auto& operation : under_way) end(std::move(operation));
  EXPECT_EQ(drain(*pool), 3 * kPart + (3 + 4 + 5) * kMiB);
  end(begin(*pool, group, OperationPool::kKeptScratchMax + 2));
  EXPECT_EQ(drain(*pool), 0U);
}

TEST(OperationPool, LetsGoOfTheGroup) {
  const auto pool = std::make_shared<OperationPool>();
  const auto group = pair_of_ranks();
  end(begin(*pool, group, 64));
  EXPECT_EQ(group.use_count(), 1);
}

}  // namespace
}  // namespace lockstep::comm
