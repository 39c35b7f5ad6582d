#include "agent/comm/gpu/nccl_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/agent/comm/gpu/device_world.h"

namespace lockstep::comm {
namespace {

using std::chrono::seconds;
using test::DeviceWorld;
using test::f32;
using test::on_all;

// The cases of all backends, on NCCL, which chooses the algorithm itself; the transport does not
// matter.
TEST(NcclBackend, GivesWhatAPlainLoopGivesForEveryPairOfFactorsThatThereCanBe) {
  test::run_covering_array({.has_nccl = true}, 20261122);
}

TEST(NcclBackend, MovesBlocksOfAnyCountsFromEachToEach) {
  constexpr int kSize = 4;
  DeviceWorld world({.size = kSize, .has_nccl = true});
  on_all(world.world(), [&](Communicator& comm) {
    const auto count = [](int from, int to) { return int64_t{(from * 3 + to * 5) % 4}; };
    std::vector<int64_t> send;
    std::vector<int64_t> receive;
    std::vector<int32_t> input;
    std::vector<int32_t> expected;
    for (int peer = 0; peer < kSize; ++peer) {
      send.push_back(count(comm.rank(), peer));
      receive.push_back(count(peer, comm.rank()));
      input.insert(input.end(), static_cast<size_t>(send.back()), comm.rank() * 10 + peer);
      expected.insert(expected.end(), static_cast<size_t>(receive.back()), peer * 10 + comm.rank());
    }
    std::vector<int32_t> output(expected.size() + 1);
    input.push_back(0);
    const Status status =
        comm.run({.kind = Collective::kAllToAll,
                  .buffer = {.data = output.data(), .type = DataType::kI32, .input = input.data()},
                  .send_counts = send,
                  .receive_counts = receive});
    ASSERT_TRUE(status.ok()) << status.error().message;
    expected.push_back(0);
    EXPECT_EQ(output, expected);
  });
}

TEST(NcclBackend, ComesBehindWhatTheStreamHasAndBeforeWhatComesLater) {
  DeviceWorld world({.size = 3, .has_nccl = true});
  on_all(world.world(), [&](Communicator& comm) {
    std::vector<float> values(1000, 0.f);
    std::vector<float> seen(1000, 0.f);
    test::FakeStream& stream = world.stream(comm.rank());
    stream.issue([&] {
      std::this_thread::yield();
      std::fill(values.begin(), values.end(), 1.f);
    });
    Work work = comm.start_all_reduce(f32(values), ReduceOp::kSum);
    stream.issue([&] { seen = values; });
    EXPECT_TRUE(work.wait().ok());
    EXPECT_TRUE(work.test());
    stream.drain();
    EXPECT_EQ(seen, std::vector<float>(1000, 3.f));
  });
}

TEST(NcclBackend, IssuesCallsTogetherSoThatNoneWaitsForAnother) {
  DeviceWorld world({.size = 2, .has_nccl = true});
  on_all(world.world(), [&](Communicator& comm) {
    std::vector<float> mine(100'000, static_cast<float>(comm.rank()));
    std::vector<float> others(mine.size());
    std::vector<float> sum(10, 1.f);
    const int peer = 1 - comm.rank();
    // Receives come first on both sides: issued one by one, they would wait for each other forever.
    const std::array<Call, 3> calls = {
        Call{.kind = Collective::kReceive, .buffer = f32(others), .rank = peer},
        Call{.kind = Collective::kSend, .buffer = f32(mine), .rank = peer},
        Call{.kind = Collective::kAllReduce, .buffer = f32(sum)}};
    ASSERT_TRUE(comm.run(calls).ok());
    EXPECT_EQ(others, std::vector<float>(mine.size(), static_cast<float>(peer)));
    EXPECT_EQ(sum, std::vector<float>(10, 2.f));
  });
}

TEST(NcclBackend, MakesGroupsInAnyOrderAndServesThemSideBySide) {
  DeviceWorld world({.size = 3, .has_nccl = true});
  on_all(world.world(), [&](Communicator& comm) {
    const std::vector<std::vector<int>> groups = {{0, 1}, {1, 2}, {2, 0}};
    std::vector<std::unique_ptr<Communicator>> made(3);
    // Each rank begins with a different group.
    for (int turn = 0; turn < 3; ++turn) {
      const auto index = static_cast<size_t>((turn + comm.rank()) % 3);
      const auto& ranks = groups[index];
      if (std::count(ranks.begin(), ranks.end(), comm.rank()) == 0) continue;
      auto group = comm.sub_group(ranks);
      ASSERT_TRUE(group.ok());
      made[index] = std::move(*group);
    }
    for (size_t index = 0; index < 3; ++index) {
      if (made[index] == nullptr) continue;
      std::vector<float> values(10, static_cast<float>(comm.rank()));
      ASSERT_TRUE(made[index]->all_reduce(f32(values), ReduceOp::kSum).ok());
      EXPECT_EQ(values[0], static_cast<float>(groups[index][0] + groups[index][1]));
    }
    auto halves = comm.split(comm.rank() % 2, -comm.rank());
    ASSERT_TRUE(halves.ok());
    EXPECT_EQ((*halves)->size(), comm.rank() == 1 ? 1 : 2);
    std::vector<float> values(5, 1.f);
    ASSERT_TRUE((*halves)->all_reduce(f32(values), ReduceOp::kSum).ok());
    EXPECT_EQ(values[0], comm.rank() == 1 ? 1.f : 2.f);
  });
}

TEST(NcclBackend, CountsItsCollectivesAndSaysWhoServesThem) {
  DeviceWorld world({.size = 2, .has_nccl = true});
  on_all(world.world(), [&](Communicator& comm) {
    ASSERT_TRUE(comm.barrier().ok());
    std::vector<float> values(5);
    ASSERT_TRUE(comm.broadcast(f32(values), 1).ok());
    EXPECT_EQ(comm.counts().entered, comm.counts().completed);
    EXPECT_GE(comm.counts().completed, 2U);
  });
  EXPECT_EQ(world[0].describe(),
            "rank 0 of 2: shared memory 1; CUDA device 0: NCCL 2.28.9, for a test");
}

TEST(NcclBackend, RefusesWrongCallsAndStaysUsable) {
  DeviceWorld world({.size = 2, .has_nccl = true});
  std::vector<float> values(4);
  const auto refused = [](const Status& status) {
    return !status.ok() && status.error().code == Code::kInvalid;
  };
  Communicator& comm = world[0];
  EXPECT_TRUE(refused(comm.all_reduce({.data = nullptr, .count = 4}, ReduceOp::kSum)));
  EXPECT_TRUE(refused(comm.broadcast(f32(values), 2)));
  EXPECT_TRUE(
      refused(comm.all_reduce(f32(values), ReduceOp::kSum, {.algorithm = Algorithm::kTree})));
  EXPECT_FALSE(comm.sub_group({1}).ok());
  on_all(world.world(), [](Communicator& rank) { EXPECT_TRUE(rank.barrier().ok()); });
}

// Two ranks in one host's memory that report on boards.
class BoardedRanks {
 public:
  BoardedRanks() {
    for (auto& memory : memory_) boards_.emplace_back(memory.data());
    test::Meeting meeting(test::Transport::kShared, 2);
    hosts_.resize(2);
    test::on_ranks(2, [&](int rank) {
      const auto at = static_cast<size_t>(rank);
      meeting.options(rank).board = &boards_[at];
      auto made = make_communicator(meeting.options(rank));
      ASSERT_TRUE(made.ok()) << made.error().message;
      hosts_[at] = std::move(*made);
    });
  }

  test::World take_hosts() { return std::move(hosts_); }
  const CollectiveBoard& board(int rank) const { return boards_[static_cast<size_t>(rank)]; }
  // Returns "2/1": how many collectives of the group were entered and completed, where `operation`
  // was the last one.
  std::string seen(int rank, const std::string& operation) const {
    for (const GroupActivity& group : board(rank).groups()) {
      if (group.operation != operation) continue;
      EXPECT_EQ(group.ranks, "0-1");
      return std::to_string(group.entered) + "/" + std::to_string(group.completed);
    }
    return "";
  }

 private:
  std::array<std::array<uint64_t, CollectiveBoard::kBytes / 8>, 2> memory_{};
  std::vector<CollectiveBoard> boards_;
  test::World hosts_;
};

TEST(NcclBackend, ShowsOnTheBoardWhichCollectiveARankHasComeTo) {
  BoardedRanks ranks;
  DeviceWorld world({.size = 2, .has_nccl = true}, ranks.take_hosts());
  on_all(world.world(), [](Communicator& comm) { ASSERT_TRUE(comm.barrier().ok()); });
  std::vector<float> first(10, 1.f);
  std::vector<float> second(10, 1.f);
  Work work = world[0].start_all_reduce(f32(first), ReduceOp::kSum);
  const SystemClock clock;
  const TimePoint begin = clock.now();
  while (ranks.seen(0, "all_reduce").empty() && clock.now() - begin < seconds(20)) {
    std::this_thread::yield();
  }
  EXPECT_EQ(ranks.seen(0, "all_reduce"), "2/1");
  EXPECT_EQ(ranks.seen(1, "barrier"), "1/1");
  EXPECT_FALSE(work.test());
  ASSERT_TRUE(world[1].all_reduce(f32(second), ReduceOp::kSum).ok());
  ASSERT_TRUE(work.wait().ok());
  for (const int rank : {0, 1}) EXPECT_EQ(ranks.seen(rank, "all_reduce"), "2/2");
  world.drop();
  EXPECT_TRUE(ranks.board(0).groups().empty());
}

TEST(NcclBackend, CountsAsTrafficWhatARingCarries) {
  DeviceWorld world({.size = 3, .has_nccl = true});
  on_all(world.world(), [](Communicator& comm) {
    ASSERT_TRUE(comm.barrier().ok());
    const Traffic before = comm.traffic();
    std::vector<float> values(999, 1.f);
    ASSERT_TRUE(comm.all_reduce(f32(values), ReduceOp::kSum).ok());
    const Traffic after = comm.traffic();
    EXPECT_EQ(after.bytes_sent - before.bytes_sent, 2 * 2 * 333 * sizeof(float));
    EXPECT_EQ(after.bytes_received - before.bytes_received, 2 * 2 * 333 * sizeof(float));
    EXPECT_EQ(after.bytes_sent_to_other_hosts, 0U);
  });
}

TEST(NcclBackend, OfOneRankNeedsNobody) {
  DeviceWorld world({.size = 1, .has_nccl = true});
  std::vector<float> values = {0.f, 2.f, -3.f};
  ASSERT_TRUE(world[0].all_reduce(f32(values), ReduceOp::kLor).ok());
  EXPECT_EQ(values, (std::vector<float>{0.f, 1.f, 1.f}));
  ASSERT_TRUE(world[0].barrier().ok());
}

// A rank has many such groups, those of a mesh's axes, in addition to the world.
TEST(NcclBackend, TakesNothingOfNcclForAGroupThatHasNoOperation) {
  DeviceWorld world({.size = 2, .has_nccl = true});
  on_all(world.world(), [&](Communicator& comm) {
    auto used = comm.sub_group({0, 1});
    auto unused = comm.sub_group({1, 0});
    ASSERT_TRUE(used.ok() && unused.ok());
    std::vector<float> values(10, 1.f);
    ASSERT_TRUE((*used)->all_reduce(f32(values), ReduceOp::kSum).ok());
    EXPECT_EQ(values[0], 2.f);
    EXPECT_EQ(world.nccl().made(), 2);
  });
}

TEST(NcclBackend, SaysWhatItIsToStreamsAndMemory) {
  DeviceWorld two({.size = 2, .has_nccl = true});
  EXPECT_TRUE(two[0].device_traits().is_stream_ordered);
  EXPECT_EQ(two[0].device_traits().memory_bytes, kNcclMemoryBytes);
  DeviceWorld one({.size = 1, .has_nccl = true});
  EXPECT_EQ(one[0].device_traits().memory_bytes, 0U);
  DeviceWorld staged({.size = 2});
  EXPECT_FALSE(staged[0].device_traits().is_stream_ordered);
  EXPECT_EQ(staged[0].device_traits().memory_bytes, 0U);
}

TEST(NcclBackend, DroppedBeforeTheOthersCameLeavesNothing) {
  for (int turn = 0; turn < 20; ++turn) {
    DeviceWorld world({.size = 2, .has_nccl = true});
    on_all(world.world(), [&](Communicator& comm) {
      // A group that is made but never used.
      auto group = comm.sub_group({0, 1});
      ASSERT_TRUE(group.ok());
    });
    world.drop();
    EXPECT_EQ(world.nccl().alive(), 0);
  }
}

}  // namespace
}  // namespace lockstep::comm
