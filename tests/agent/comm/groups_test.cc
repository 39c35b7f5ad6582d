// Sub-groups, and operations of several groups and pairs of ranks under way at once.
#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "tests/agent/comm/worlds.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::make_world;
using test::on_all;
using test::Transport;
using test::World;

// More than any link holds.
constexpr size_t kLarge = size_t{1} << 20;
// More, as bytes, than all that may wait anywhere on the way of one operation.
constexpr size_t kHuge = size_t{24} << 20;

CommBuffer i32(std::vector<int32_t>& values) {
  return {
      .data = values.data(), .count = static_cast<int64_t>(values.size()), .type = DataType::kI32};
}

std::string message_of(const Status& status) {
  return status.ok() ? "" : status.error().message;
}

std::unique_ptr<Communicator> group_of(Communicator& comm, const std::vector<int>& ranks) {
  auto made = comm.sub_group(ranks);
  EXPECT_TRUE(made.ok()) << made.error().message;
  return std::move(*made);
}

class OnEveryTransport : public testing::TestWithParam<Transport> {
 protected:
  World make(int size, Duration limit = seconds(60)) { return make_world(GetParam(), size, limit); }
};

TEST_P(OnEveryTransport, SplitMakesAGroupOfEachColourInTheOrderOfTheKeys) {
  World world = make(5);
  on_all(world, [](Communicator& comm) {
    // Colours 0 and 1; rank 4 is in none. The keys turn the order around.
    auto made = comm.split(comm.rank() == 4 ? -1 : comm.rank() % 2, -comm.rank());
    ASSERT_TRUE(made.ok()) << made.error().message;
    if (comm.rank() == 4) {
      EXPECT_EQ(*made, nullptr);
      return;
    }
    Communicator& group = **made;
    EXPECT_EQ(group.size(), 2);
    EXPECT_EQ(group.rank(), comm.rank() < 2 ? 1 : 0);
    const auto ranks = group.all_gather_value(comm.rank());
    ASSERT_TRUE(ranks.ok());
    const int odd = comm.rank() % 2;
    EXPECT_EQ(*ranks, (std::vector<int>{2 + odd, odd}));
  });
}

TEST_P(OnEveryTransport, OverlappingGroupsWorkAtOnceInWhateverOrderTheyAreCalled) {
  World world = make(3);
  on_all(world, [](Communicator& comm) {
    // 0 and 1, 1 and 2, 2 and 0: everyone begins with another one.
    const int next = (comm.rank() + 1) % 3;
    const int before = (comm.rank() + 2) % 3;
    const auto with_next = group_of(comm, {comm.rank(), next});
    const auto with_previous = group_of(comm, {before, comm.rank()});
    for (const size_t count : {size_t{3}, kLarge}) {
      std::vector<int32_t> first(count, comm.rank());
      std::vector<int32_t> second(count, comm.rank());
      Work one = with_next->start_all_reduce(i32(first), ReduceOp::kSum);
      Work two = with_previous->start_all_reduce(i32(second), ReduceOp::kSum);
      ASSERT_TRUE(two.wait().ok());
      ASSERT_TRUE(one.wait().ok());
      EXPECT_EQ(first, std::vector<int32_t>(count, comm.rank() + next));
      EXPECT_EQ(second, std::vector<int32_t>(count, comm.rank() + before));
    }
  });
}

TEST_P(OnEveryTransport, TwoGroupsOfTheSameRanksDoNotMixUp) {
  World world = make(2);
  on_all(world, [](Communicator& comm) {
    const std::array<std::unique_ptr<Communicator>, 2> groups = {group_of(comm, {1, 0}),
                                                                 group_of(comm, {1, 0})};
    std::array<std::vector<int32_t>, 2> values = {std::vector<int32_t>(kLarge, 1),
                                                  std::vector<int32_t>(77, 5)};
    std::array<Work, 2> works;
    for (size_t turn = 0; turn < 2; ++turn) {
      const size_t i = comm.rank() == 0 ? turn : 1 - turn;
      works[i] = groups[i]->start_all_reduce(i32(values[i]), ReduceOp::kSum);
    }
    for (Work& work : works) ASSERT_EQ(message_of(work.wait()), "");
    EXPECT_EQ(values[0], std::vector<int32_t>(kLarge, 2));
    EXPECT_EQ(values[1], std::vector<int32_t>(77, 10));
  });
}

TEST_P(OnEveryTransport, MessagesInBothDirectionsAtOnceArriveInTheirOrder) {
  World world = make(2);
  on_all(world, [](Communicator& comm) {
    const int other = 1 - comm.rank();
    constexpr int kMessages = 6;
    std::vector<std::vector<int32_t>> going;
    std::vector<std::vector<int32_t>> coming;
    std::vector<Work> works;
    for (int i = 0; i < kMessages; ++i) {
      const size_t count = i % 2 == 0 ? kLarge / 2 : static_cast<size_t>(i);
      going.emplace_back(count, 100 * comm.rank() + i);
      coming.emplace_back(count, -1);
    }
    for (auto& message : going) works.push_back(comm.start_send(i32(message), other));
    for (auto& message : coming) works.push_back(comm.start_receive(i32(message), other));
    for (Work& work : works) ASSERT_EQ(message_of(work.wait()), "");
    for (int i = 0; i < kMessages; ++i) {
      const auto& message = coming[static_cast<size_t>(i)];
      EXPECT_EQ(message, std::vector<int32_t>(message.size(), 100 * other + i));
    }
  });
}

TEST_P(OnEveryTransport, AMessageIsTakenFromBehindACollectiveThatIsNotCalledYet) {
  World world = make(2);
  on_all(world, [](Communicator& comm) {
    std::vector<int32_t> values(kLarge, 1);
    std::vector<int32_t> message(1000, comm.rank());
    if (comm.rank() == 0) {
      Work work = comm.start_all_reduce(i32(values), ReduceOp::kSum);
      ASSERT_TRUE(comm.send(i32(message), 1).ok());
      ASSERT_EQ(message_of(work.wait()), "");
    } else {
      ASSERT_TRUE(comm.receive(i32(message), 0).ok());
      EXPECT_EQ(message, std::vector<int32_t>(1000, 0));
      ASSERT_TRUE(comm.all_reduce(i32(values), ReduceOp::kSum).ok());
    }
    EXPECT_EQ(values, std::vector<int32_t>(kLarge, 2));
  });
}

// What comes behind a large operation that the other side does not call yet waits for none of it.
TEST_P(OnEveryTransport, ABarrierComesPastAHugeMessageThatIsNotReceivedYet) {
  World world = make(2, seconds(10));
  on_all(world, [](Communicator& comm) {
    std::vector<int32_t> message(kHuge, comm.rank() + 5);
    if (comm.rank() == 0) {
      Work work = comm.start_send(i32(message), 1);
      ASSERT_EQ(message_of(comm.barrier()), "");
      ASSERT_EQ(message_of(work.wait()), "");
    } else {
      ASSERT_EQ(message_of(comm.barrier()), "");
      ASSERT_EQ(message_of(comm.receive(i32(message), 0)), "");
      EXPECT_EQ(message, std::vector<int32_t>(kHuge, 5));
    }
  });
}

TEST_P(OnEveryTransport, HugeAndSmallCollectivesOfTwoGroupsComeInAnyOrder) {
  World world = make(2, seconds(10));
  on_all(world, [](Communicator& comm) {
    const auto huge_group = group_of(comm, {0, 1});
    const auto small_group = group_of(comm, {0, 1});
    std::vector<int32_t> huge(2 * kHuge, 1);
    std::vector<int32_t> small(2, 3);
    if (comm.rank() == 0) {
      Work work = huge_group->start_all_reduce(i32(huge), ReduceOp::kSum);
      ASSERT_EQ(message_of(small_group->all_reduce(i32(small), ReduceOp::kSum)), "");
      ASSERT_EQ(message_of(work.wait()), "");
    } else {
      ASSERT_EQ(message_of(small_group->all_reduce(i32(small), ReduceOp::kSum)), "");
      ASSERT_EQ(message_of(huge_group->all_reduce(i32(huge), ReduceOp::kSum)), "");
    }
    EXPECT_EQ(huge, std::vector<int32_t>(2 * kHuge, 2));
    EXPECT_EQ(small, std::vector<int32_t>(2, 6));
  });
}

// Rank 0 is in the reduce too, and can't take what rank 2 sends before rank 1 has come.
TEST_P(OnEveryTransport, WhatAnOperationCantTakeYetKeepsNoOtherFromGoingOn) {
  World world = make(3, seconds(10));
  on_all(world, [](Communicator& comm) {
    std::vector<int32_t> huge(kHuge, 1);
    const auto reduce = [&] {
      return comm.start_reduce(i32(huge), ReduceOp::kSum, 0, {.algorithm = Algorithm::kOneRoot});
    };
    Work work;
    if (comm.rank() != 1) {
      work = reduce();
      const auto ends = group_of(comm, {0, 2});
      ASSERT_EQ(message_of(ends->barrier()), "");
    }
    if (comm.rank() != 2) {
      const auto beginning = group_of(comm, {0, 1});
      ASSERT_EQ(message_of(beginning->barrier()), "");
    }
    if (comm.rank() == 1) work = reduce();
    ASSERT_EQ(message_of(work.wait()), "");
    if (comm.rank() == 0) {
      EXPECT_EQ(huge, std::vector<int32_t>(kHuge, 3));
    }
  });
}

TEST_P(OnEveryTransport, AMessageOfAnotherSizeIsNamed) {
  World world = make(2);
  on_all(world, [](Communicator& comm) {
    std::vector<int32_t> message(comm.rank() == 0 ? 10 : 12);
    Status status = comm.rank() == 0 ? comm.send(i32(message), 1) : comm.receive(i32(message), 0);
    if (status.ok()) status = comm.barrier();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Code::kConflict) << status.error().message;
    EXPECT_NE(status.error().message.find(
                  "rank 1 is in send #1 (12 x i32, direct), rank 0 in send #1 (10 x i32, direct)"),
              std::string::npos)
        << status.error().message;
  });
}

TEST_P(OnEveryTransport, AnOperationHasItsOwnTimeLimit) {
  World world = make(2);
  std::vector<int32_t> message(5);
  const Status status = world[1]->receive(i32(message), 0, {.limit = milliseconds(50)});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::kTimeout);
  EXPECT_EQ(status.error().message.find("[comm] send #1: rank 0 silent for 0."), 0u)
      << status.error().message;
  EXPECT_EQ(world[1]->suspect(), 0);
}

TEST_P(OnEveryTransport, RanksInOperationsOfDifferentGroupsAreToldApartAfterTheLimit) {
  World world = make(2, milliseconds(1000));
  on_all(world, [](Communicator& comm) {
    const auto group = group_of(comm, {1, 0});
    const Status status = comm.rank() == 0 ? comm.barrier() : group->barrier();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Code::kTimeout) << status.error().message;
    const bool first = status.error().message.find("not called here") != std::string::npos;
    EXPECT_TRUE(first) << status.error().message;
  });
}

INSTANTIATE_TEST_SUITE_P(Comm, OnEveryTransport,
                         testing::Values(Transport::kThreads, Transport::kShared, Transport::kTcp,
                                         Transport::kMixed),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace lockstep
