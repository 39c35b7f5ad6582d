// Reports of ranks on their boards, and who is blamed when ranks in several groups are stuck.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

#include "common/api/collective_board.h"
#include "tests/agent/comm/worlds.h"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::Meeting;
using test::on_all;
using test::on_ranks;
using test::Transport;
using test::World;

// A world whose ranks have boards, as seen by their agents.
class Boards {
 public:
  Boards(int size, Duration limit) : memory_(static_cast<size_t>(size)) {
    Meeting meeting(Transport::kMixed, size);
    meeting.set_limits(seconds(60), limit);
    for (auto& one : memory_) boards_.emplace_back(one.data());
    world_.resize(memory_.size());
    on_ranks(size, [&](int rank) {
      meeting.options(rank).board = &boards_[static_cast<size_t>(rank)];
      auto made = make_communicator(meeting.options(rank));
      ASSERT_TRUE(made.ok()) << made.error().message;
      world_[static_cast<size_t>(rank)] = std::move(*made);
    });
  }

  World& world() { return world_; }
  const CollectiveBoard& board(int rank) const { return boards_[static_cast<size_t>(rank)]; }
  std::optional<GroupActivity> group(int rank, const std::string& ranks) const {
    for (const GroupActivity& group : board(rank).groups()) {
      if (group.ranks == ranks) return group;
    }
    return std::nullopt;
  }

 private:
  using Memory = std::array<uint64_t, CollectiveBoard::kBytes / 8>;
  std::vector<Memory> memory_;
  std::vector<CollectiveBoard> boards_;
  World world_;
};

template <class Condition>
void eventually(const Condition& condition) {
  const auto deadline = std::chrono::steady_clock::now() + seconds(60);
  while (!condition() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  ASSERT_TRUE(condition());
}

TEST(Boards, HaveTheLastCollectiveEnteredAndCompletedOfEveryGroup) {
  Boards boards(4, seconds(60));
  on_all(boards.world(), [](Communicator& comm) {
    auto half = comm.split(comm.rank() % 2, 0);
    ASSERT_TRUE(half.ok());
    float value = 1;
    ASSERT_TRUE((*half)->all_reduce({.data = &value, .count = 1}, ReduceOp::kSum).ok());
    ASSERT_TRUE((*half)->barrier().ok());
    ASSERT_TRUE(comm.barrier().ok());  // nobody closes its group before all have looked
    ASSERT_TRUE(comm.barrier().ok());
  });
  const auto world = boards.group(3, "0-3");
  ASSERT_TRUE(world);
  EXPECT_EQ(*world, (GroupActivity{.group = 0,
                                   .size = 4,
                                   .ranks = "0-3",
                                   .operation = "barrier",
                                   .entered = 3,
                                   .completed = 3}));
  EXPECT_EQ(boards.board(3).groups().size(), 1u) << "a closed group keeps its place";
}

TEST(Boards, CountAWaitFromWhenTheProgramHadNothingElseToDo) {
  Boards boards(2, seconds(60));
  std::atomic<bool> is_seen = false;
  on_ranks(2, [&](int rank) {
    Communicator& comm = *boards.world()[static_cast<size_t>(rank)];
    float value = 1;
    if (rank == 1) {
      eventually([&] { return is_seen.load(); });
      ASSERT_TRUE(comm.send({.data = &value, .count = 1}, 0).ok());
      return;
    }
    Work receive = comm.start_receive({.data = &value, .count = 1}, 1);
    std::this_thread::sleep_for(milliseconds(300));  // computes
    const auto blocked_at = std::chrono::steady_clock::now().time_since_epoch();
    std::optional<RankWait> wait;
    std::jthread agent([&] {
      eventually([&] { return (wait = boards.board(0).wait()).has_value(); });
      is_seen = true;
    });
    ASSERT_TRUE(receive.wait().ok());
    agent.join();
    ASSERT_TRUE(wait);
    EXPECT_GE(wait->since_nanoseconds, std::chrono::nanoseconds(blocked_at).count());
  });
}

TEST(Boards, TellWhatARankStandsInAndForWhom) {
  Boards boards(4, seconds(60));
  World& world = boards.world();
  on_ranks(4, [&](int rank) {
    Communicator& comm = *world[static_cast<size_t>(rank)];
    if (rank < 2) {
      auto pair = comm.sub_group({1, 0});
      ASSERT_TRUE(pair.ok());
      if (rank == 0) {
        ASSERT_TRUE((*pair)->barrier().ok());
        return;
      }
      eventually([&] { return boards.board(0).wait().has_value(); });
      const RankWait wait = *boards.board(0).wait();
      EXPECT_EQ(wait.operation, "barrier");
      EXPECT_EQ(wait.number, 1u);
      EXPECT_EQ(wait.ranks, "1, 0");
      EXPECT_EQ(wait.size, 2);
      EXPECT_EQ(wait.waits_for.first(), 1);
      const auto group = boards.group(0, "1, 0");
      ASSERT_TRUE(group);
      EXPECT_EQ(group->entered, 1u);
      EXPECT_EQ(group->completed, 0u);
      EXPECT_FALSE(boards.board(1).wait());
      ASSERT_TRUE((*pair)->barrier().ok());
    }
  });
  EXPECT_FALSE(boards.board(0).wait()) << "the wait is over";
  eventually([&] { return boards.board(2).beats() > 1; });
}

TEST(Boards, WhatGoesOnInTheBackgroundIsNoWait) {
  Boards boards(2, seconds(60));
  World& world = boards.world();
  float value = 1;
  Work work = world[0]->start_all_reduce({.data = &value, .count = 1}, ReduceOp::kSum);
  // After two beats, anything to be reported has been reported.
  const uint64_t beats = boards.board(0).beats();
  eventually([&] { return boards.board(0).beats() > beats + 1; });
  EXPECT_FALSE(boards.board(0).wait());
  std::thread waiting([&] { EXPECT_TRUE(work.wait().ok()); });
  eventually([&] { return boards.board(0).wait().has_value(); });
  float other = 2;
  EXPECT_TRUE(world[1]->all_reduce({.data = &other, .count = 1}, ReduceOp::kSum).ok());
  waiting.join();
  EXPECT_EQ(value, 3.f);
}

TEST(Boards, TellSoonThatARankHasComeToStandInWhatWentOnInTheBackground) {
  Boards boards(2, seconds(2));
  World& world = boards.world();
  float value = 1;
  const uint64_t beats = boards.board(0).beats();
  Work work = world[0]->start_all_reduce({.data = &value, .count = 1}, ReduceOp::kSum);
  // There is a quarter of a second between beats, so the driver is asleep by now.
  eventually([&] { return boards.board(0).beats() > beats + 1; });
  const uint64_t begin = boards.board(0).beats();
  std::thread waiting([&] { EXPECT_TRUE(work.wait().ok()); });
  eventually([&] { return boards.board(0).wait().has_value(); });
  EXPECT_LE(boards.board(0).beats(), begin + 2);
  float other = 2;
  EXPECT_TRUE(world[1]->all_reduce({.data = &other, .count = 1}, ReduceOp::kSum).ok());
  waiting.join();
}

TEST(Boards, WhoStandsInWhatQueuesBehindAnotherWaitsForThatOne) {
  Boards boards(2, seconds(60));
  World& world = boards.world();
  float value = 1;
  Work work = world[0]->start_all_reduce({.data = &value, .count = 1}, ReduceOp::kSum);
  std::thread waiting([&] { EXPECT_TRUE(world[0]->barrier().ok()); });
  eventually([&] { return boards.board(0).wait().has_value(); });
  const RankWait wait = *boards.board(0).wait();
  EXPECT_EQ(wait.operation, "all_reduce");
  EXPECT_EQ(wait.waits_for.first(), 1);
  float other = 2;
  EXPECT_TRUE(world[1]->all_reduce({.data = &other, .count = 1}, ReduceOp::kSum).ok());
  EXPECT_TRUE(world[1]->barrier().ok());
  EXPECT_TRUE(work.wait().ok());
  waiting.join();
}

TEST(Boards, MoreGroupsThanThereIsRoomForTakeTurnsAndThoseUnderWayAreShown) {
  Boards boards(2, seconds(60));
  on_all(boards.world(), [&](Communicator& comm) {
    std::vector<std::unique_ptr<Communicator>> groups;
    for (int i = 0; i < 3 * CollectiveBoard::kGroups; ++i) {
      auto group = comm.sub_group({0, 1});
      ASSERT_TRUE(group.ok());
      ASSERT_TRUE((*group)->barrier().ok());
      groups.push_back(std::move(*group));
      EXPECT_LE(boards.board(comm.rank()).groups().size(),
                static_cast<size_t>(CollectiveBoard::kGroups));
    }
    // The oldest group has lost its place, and gets one again.
    ASSERT_TRUE(groups.front()->barrier().ok());
    const auto shown = boards.board(comm.rank()).groups();
    EXPECT_TRUE(std::any_of(shown.begin(), shown.end(),
                            [](const GroupActivity& group) { return group.completed == 2; }));
    ASSERT_TRUE(comm.barrier().ok());
  });
}

// Ranks 0 and 1 wait in their group for rank 2. Rank 2 waits in another group for rank 3, which
// does something else.
TEST(Blame, NamesWhoWaitsForNobodyThroughWhateverGroups) {
  Boards boards(4, milliseconds(800));
  on_all(boards.world(), [&](Communicator& comm) {
    auto first = comm.rank() < 3 ? comm.sub_group({0, 1, 2}) : comm.sub_group({3});
    auto second = comm.rank() > 1 ? comm.sub_group({2, 3}) : comm.sub_group({comm.rank()});
    ASSERT_TRUE(first.ok() && second.ok());
    if (comm.rank() == 3) {
      eventually([&] { return comm.suspect() >= 0; });
      EXPECT_EQ(comm.suspect(), 3);
      return;
    }
    Communicator& group = comm.rank() == 2 ? **second : **first;
    const Status status = group.barrier();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(comm.suspect(), 3) << status.error().message;
  });
}

}  // namespace
}  // namespace lockstep::comm
