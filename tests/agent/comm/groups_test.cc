// Sub-groups, and concurrent operations of several groups and pairs of ranks.
#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "tests/agent/comm/small_frames.h"
#include "tests/agent/comm/worlds.h"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::make_world;
using test::on_all;
using test::Transport;
using test::World;

// More than any link holds.
constexpr size_t kLarge = size_t{1} << 20;

// Values that reveal data in a wrong place, received twice, or from another rank.
int32_t given(int rank, size_t index) {
  return static_cast<int32_t>(index * 7 + index / 1009) + 1000 * rank;
}
std::vector<int32_t> numbers(size_t count, int rank) {
  std::vector<int32_t> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = given(rank, i);
  return values;
}
// Returns the sum of the values of ranks 0 to `ranks` - 1.
std::vector<int32_t> sums(size_t count, int ranks) {
  std::vector<int32_t> values(count);
  for (int rank = 0; rank < ranks; ++rank) {
    for (size_t i = 0; i < count; ++i) values[i] += given(rank, i);
  }
  return values;
}

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
    // Colours 0 and 1; rank 4 has none. The keys reverse the order.
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
    // Groups {0, 1}, {1, 2} and {2, 0}: everyone begins with a different one.
    const int next = (comm.rank() + 1) % 3;
    const int before = (comm.rank() + 2) % 3;
    const auto with_next = group_of(comm, {comm.rank(), next});
    const auto with_previous = group_of(comm, {before, comm.rank()});
    for (const size_t count : {size_t{3}, kLarge}) {
      std::vector<int32_t> first = numbers(count, comm.rank());
      std::vector<int32_t> second = first;
      const auto with = [&](int other) {
        std::vector<int32_t> sum = numbers(count, comm.rank());
        for (size_t i = 0; i < count; ++i) sum[i] += given(other, i);
        return sum;
      };
      Work one = with_next->start_all_reduce(i32(first), ReduceOp::kSum);
      Work two = with_previous->start_all_reduce(i32(second), ReduceOp::kSum);
      ASSERT_TRUE(two.wait().ok());
      ASSERT_TRUE(one.wait().ok());
      EXPECT_EQ(first, with(next));
      EXPECT_EQ(second, with(before));
    }
  });
}

TEST_P(OnEveryTransport, TwoGroupsOfTheSameRanksDoNotMixUp) {
  World world = make(2);
  on_all(world, [](Communicator& comm) {
    const std::array<std::unique_ptr<Communicator>, 2> groups = {group_of(comm, {1, 0}),
                                                                 group_of(comm, {1, 0})};
    std::array<std::vector<int32_t>, 2> values = {numbers(kLarge, comm.rank()),
                                                  numbers(77, comm.rank())};
    std::array<Work, 2> works;
    for (size_t turn = 0; turn < 2; ++turn) {
      const size_t i = comm.rank() == 0 ? turn : 1 - turn;
      works[i] = groups[i]->start_all_reduce(i32(values[i]), ReduceOp::kSum);
    }
    for (Work& work : works) ASSERT_EQ(message_of(work.wait()), "");
    EXPECT_EQ(values[0], sums(kLarge, 2));
    EXPECT_EQ(values[1], sums(77, 2));
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
      going.push_back(numbers(count, 10 * comm.rank() + i));
      coming.emplace_back(count, -1);
    }
    for (auto& message : going) works.push_back(comm.start_send(i32(message), other));
    for (auto& message : coming) works.push_back(comm.start_receive(i32(message), other));
    for (Work& work : works) ASSERT_EQ(message_of(work.wait()), "");
    for (int i = 0; i < kMessages; ++i) {
      const auto& message = coming[static_cast<size_t>(i)];
      EXPECT_EQ(message, numbers(message.size(), 10 * other + i));
    }
  });
}

TEST_P(OnEveryTransport, AMessageIsTakenFromBehindACollectiveThatIsNotCalledYet) {
  World world = make(2);
  on_all(world, [](Communicator& comm) {
    std::vector<int32_t> values = numbers(kLarge, comm.rank());
    std::vector<int32_t> message = numbers(1000, comm.rank());
    if (comm.rank() == 0) {
      Work work = comm.start_all_reduce(i32(values), ReduceOp::kSum);
      ASSERT_TRUE(comm.send(i32(message), 1).ok());
      ASSERT_EQ(message_of(work.wait()), "");
    } else {
      ASSERT_TRUE(comm.receive(i32(message), 0).ok());
      EXPECT_EQ(message, numbers(1000, 0));
      ASSERT_TRUE(comm.all_reduce(i32(values), ReduceOp::kSum).ok());
    }
    EXPECT_EQ(values, sums(kLarge, 2));
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
    const bool first =
        status.error().message.find("which this rank has not called") != std::string::npos;
    EXPECT_TRUE(first) << status.error().message;
  });
}

struct TestSetup {
  Transport transport;
  test::Limits limits;
};

// Operations that exceed everything that may wait on their way.
class PastTheWindow : public testing::TestWithParam<TestSetup> {
 protected:
  World make(int size) const {
    return make_world(GetParam().transport, size, seconds(20), limits());
  }
  static CommLimits limits() { return GetParam().limits; }
  // Not a whole number of windows, pieces or lines.
  static size_t huge() { return 3 * limits().window_bytes / sizeof(int32_t) + 12'347; }
};

// Later operations do not wait for a large one that the other side has not called yet.
TEST_P(PastTheWindow, ABarrierComesPastAMessageThatIsNotReceivedYet) {
  World world = make(2);
  on_all(world, [](Communicator& comm) {
    std::vector<int32_t> message = numbers(huge(), comm.rank());
    if (comm.rank() == 0) {
      Work work = comm.start_send(i32(message), 1);
      ASSERT_EQ(message_of(comm.barrier()), "");
      ASSERT_EQ(message_of(work.wait()), "");
    } else {
      ASSERT_EQ(message_of(comm.barrier()), "");
      ASSERT_EQ(message_of(comm.receive(i32(message), 0)), "");
    }
    EXPECT_EQ(message, numbers(huge(), 0));
  });
}

TEST_P(PastTheWindow, LargeAndSmallCollectivesOfTwoGroupsComeInAnyOrder) {
  World world = make(2);
  on_all(world, [](Communicator& comm) {
    const auto large_group = group_of(comm, {0, 1});
    const auto small_group = group_of(comm, {0, 1});
    std::vector<int32_t> large = numbers(2 * huge(), comm.rank());
    std::vector<int32_t> small = numbers(2, comm.rank());
    if (comm.rank() == 0) {
      Work work = large_group->start_all_reduce(i32(large), ReduceOp::kSum);
      ASSERT_EQ(message_of(small_group->all_reduce(i32(small), ReduceOp::kSum)), "");
      ASSERT_EQ(message_of(work.wait()), "");
    } else {
      ASSERT_EQ(message_of(small_group->all_reduce(i32(small), ReduceOp::kSum)), "");
      ASSERT_EQ(message_of(large_group->all_reduce(i32(large), ReduceOp::kSum)), "");
    }
    EXPECT_EQ(large, sums(2 * huge(), 2));
    EXPECT_EQ(small, sums(2, 2));
  });
}

// Rank 0 is in the reduce too, and cannot take what rank 2 sends until rank 1 has entered.
TEST_P(PastTheWindow, WhatAnOperationCantTakeYetKeepsNoOtherFromGoingOn) {
  World world = make(3);
  on_all(world, [](Communicator& comm) {
    std::vector<int32_t> large = numbers(huge(), comm.rank());
    const auto reduce = [&] {
      return comm.start_reduce(i32(large), ReduceOp::kSum, 0, {.algorithm = Algorithm::kOneRoot});
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
      EXPECT_EQ(large, sums(huge(), 3));
    }
  });
}

// Both wait for credits of several messages at the same time, with frames of others behind them.
TEST_P(PastTheWindow, MessagesBothWaysAtOnceAreTakenInAnyOrder) {
  World world = make(2);
  on_all(world, [](Communicator& comm) {
    constexpr size_t kMessages = 3;
    const int other = 1 - comm.rank();
    std::vector<std::vector<int32_t>> going;
    std::vector<std::vector<int32_t>> coming;
    for (size_t i = 0; i < kMessages; ++i) {
      going.push_back(numbers(huge() + i, comm.rank() + 2 * static_cast<int>(i)));
      coming.emplace_back(huge() + i);
    }
    std::vector<Work> works;
    for (size_t i = 0; i < kMessages; ++i) {
      works.push_back(comm.start_send(i32(going[i]), other));
      if (comm.rank() == 0) works.push_back(comm.start_receive(i32(coming[i]), other));
    }
    ASSERT_EQ(message_of(comm.barrier()), "");
    for (size_t i = 0; comm.rank() == 1 && i < kMessages; ++i) {
      works.push_back(comm.start_receive(i32(coming[i]), other));
    }
    for (Work& work : works) ASSERT_EQ(message_of(work.wait()), "");
    for (size_t i = 0; i < kMessages; ++i) {
      EXPECT_EQ(coming[i], numbers(huge() + i, other + 2 * static_cast<int>(i))) << i;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Comm, PastTheWindow,
                         testing::Values(TestSetup{Transport::kThreads, {false, false}},
                                         TestSetup{Transport::kThreads, {false, true}},
                                         TestSetup{Transport::kTcp, {false, false}},
                                         TestSetup{Transport::kThreads, {true, false}},
                                         TestSetup{Transport::kThreads, {true, true}},
                                         TestSetup{Transport::kShared, {true, false}},
                                         TestSetup{Transport::kShared, {true, true}},
                                         TestSetup{Transport::kTcp, {true, false}},
                                         TestSetup{Transport::kMixed, {true, true}}),
                         [](const auto& info) {
                           return name_of(info.param.transport) +
                                  (info.param.limits.has_small_frames ? "SmallFrames" : "") +
                                  (info.param.limits.lends ? "Loans" : "");
                         });

INSTANTIATE_TEST_SUITE_P(Comm, OnEveryTransport,
                         testing::Values(Transport::kThreads, Transport::kShared, Transport::kTcp,
                                         Transport::kMixed),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace lockstep::comm
