#include "agent/comm/gpu/nccl_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "tests/agent/comm/gpu/device_world.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::DeviceWorld;
using test::f32;
using test::on_all;

// The cases of all backends, on NCCL: it chooses the algorithm, and the transport isn't one.
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
    // Receives first on both sides: one by one they would wait for each other for ever.
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
    // Each rank begins with another one.
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

// Every rank but the last is in an operation that the last one never comes to.
void expect_all_wake(DeviceWorld& world, const std::function<void()>& happens,
                     const std::string& words, Code code = Code::kUnavailable) {
  std::latch past_barrier(static_cast<std::ptrdiff_t>(world.world().size()));
  on_all(world.world(), [&](Communicator& comm) {
    const bool is_past = comm.barrier().ok();
    past_barrier.arrive_and_wait();
    ASSERT_TRUE(is_past);
    const bool is_last = comm.rank() == comm.size() - 1;
    std::vector<float> values(10);
    if (is_last) {
      happens();
      return;
    }
    const Status status = comm.all_reduce(f32(values), ReduceOp::kSum);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, code);
    EXPECT_NE(status.error().message.find(words), std::string::npos) << status.error().message;
    // It stays broken, with its first error.
    const Status later = comm.barrier();
    ASSERT_FALSE(later.ok());
    EXPECT_EQ(later.error().message, status.error().message);
  });
  world.drop();
  EXPECT_EQ(world.nccl().alive(), 0);
}

TEST(NcclBackend, WakesEveryRankWhenOneAborts) {
  DeviceWorld world({.size = 3, .has_nccl = true});
  expect_all_wake(
      world, [&] { world[2].abort("enough"); }, "aborted by rank 2: enough");
  EXPECT_EQ(world.nccl().aborted(), 3);
}

TEST(NcclBackend, WakesItsOwnRanksFromAnyThread) {
  DeviceWorld world({.size = 2, .has_nccl = true});
  expect_all_wake(
      world, [&] { std::jthread([&] { world[0].abort("from outside"); }).join(); },
      "aborted by rank 0: from outside");
}

TEST(NcclBackend, EndsAnOperationThatARankDoesNotComeToWhenTheLimitHasPassed) {
  DeviceWorld world({.size = 2, .has_nccl = true, .limit = milliseconds(1000)});
  expect_all_wake(
      world, [] {}, "all_reduce #2: not done on the GPU after 1 s", Code::kTimeout);
}

TEST(NcclBackend, CountsTheLimitFromWhenTheStreamHasComeToTheOperation) {
  DeviceWorld world({.size = 2, .has_nccl = true, .limit = milliseconds(1000)});
  on_all(world.world(), [&](Communicator& comm) {
    ASSERT_TRUE(comm.barrier().ok());
    std::vector<float> values(10, 1.f);
    // Computing for longer than the limit is nobody's silence.
    world.stream(comm.rank()).issue([] { std::this_thread::sleep_for(milliseconds(2500)); });
    const Status status = comm.all_reduce(f32(values), ReduceOp::kSum);
    EXPECT_TRUE(status.ok()) << status.error().message;
  });
}

TEST(NcclBackend, TellsAsynchronousErrorsToTheRanksThatWait) {
  DeviceWorld world({.size = 2, .has_nccl = true});
  expect_all_wake(
      world, [&] { world.nccl().break_links("remote process exited"); },
      "[nccl] remote process exited");
}

TEST(NcclBackend, TellsTheOthersWhenACallIsRefusedOnOneRank) {
  DeviceWorld world({.size = 2, .has_nccl = true});
  on_all(world.world(), [](Communicator& comm) { ASSERT_TRUE(comm.barrier().ok()); });
  world.nccl().refuse_calls();
  on_all(world.world(), [&](Communicator& comm) {
    if (comm.rank() == 1) return;
    std::vector<float> values(10);
    const Status status = comm.all_reduce(f32(values), ReduceOp::kSum);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find("got invalid usage"), std::string::npos);
  });
  // The other rank knows without having called anything.
  const SystemClock clock;
  const TimePoint begin = clock.now();
  while (world[1].health().ok() && clock.now() - begin < seconds(20)) std::this_thread::yield();
  EXPECT_FALSE(world[1].health().ok());
}

// Until then NCCL's kernels may write to the caller's memory.
TEST(NcclBackend, TellsOfACallThatFailedBehindWhatWasIssuedWhenNcclWasAborted) {
  DeviceWorld world({.size = 1, .has_nccl = true});
  std::vector<float> values(10, 1.f);
  ASSERT_TRUE(world[0].all_reduce(f32(values), ReduceOp::kAvg).ok());
  std::latch returned(1);
  world.stream(0).issue([&] { returned.wait(); });
  // The truth of the first is issued, the division of the second is refused.
  world.device(0).fail_after(1);
  const std::array<Call, 2> calls = {
      Call{.kind = Collective::kAllReduce, .buffer = f32(values), .op = ReduceOp::kLor},
      Call{.kind = Collective::kAllReduce, .buffer = f32(values), .op = ReduceOp::kAvg}};
  const Status status = world[0].run(calls);
  EXPECT_EQ(world.nccl().aborted(), 1);
  returned.count_down();
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("the fake device has failed"), std::string::npos)
      << status.error().message;
  // As what comes later is refused with.
  EXPECT_EQ(world[0].barrier().error().message, status.error().message);
  world.stream(0).drain();
}

TEST(NcclBackend, WaitsForTheOthersToLeaveAsLongAsTheLimitThatWasSetLast) {
  DeviceWorld world({.size = 2, .has_nccl = true, .limit = seconds(60)});
  on_all(world.world(), [](Communicator& comm) {
    ASSERT_TRUE(comm.barrier().ok());
    comm.set_silence_limit(milliseconds(100));
  });
  const SystemClock clock;
  const TimePoint begin = clock.now();
  world.world().front().reset();
  EXPECT_LT(clock.now() - begin, seconds(30));
  EXPECT_EQ(world.nccl().aborted(), 1);
}

TEST(NcclBackend, ASilenceLimitThatIsNoneIsTheOneThatItWasMadeWith) {
  DeviceWorld world({.size = 2, .has_nccl = true, .limit = seconds(60)});
  on_all(world.world(), [&](Communicator& comm) {
    comm.set_silence_limit(seconds(20));
    const auto group = comm.sub_group({1, 0});
    ASSERT_TRUE(group.ok());
    for (Communicator* each : {&comm, group->get()}) {
      each->set_silence_limit(Duration::zero());
      if (comm.rank() == 1) std::this_thread::sleep_for(milliseconds(200));
      std::vector<float> values(10, 1.f);
      const Status status = each->all_reduce(f32(values), ReduceOp::kSum);
      EXPECT_TRUE(status.ok()) << status.error().message;
    }
  });
}

// A worker sets the limit of its world and reduces in a group of it.
TEST(NcclBackend, ASilenceLimitHoldsForTheGroupsThatWereMadeBeforeItWasSet) {
  DeviceWorld world({.size = 2, .has_nccl = true, .limit = seconds(200)});
  on_all(world.world(), [](Communicator& comm) {
    const auto group = comm.sub_group({0, 1});
    ASSERT_TRUE(group.ok());
    std::vector<float> values(10, 1.f);
    ASSERT_TRUE((*group)->all_reduce(f32(values), ReduceOp::kSum).ok());
    if (comm.rank() == 1) return;
    comm.set_silence_limit(milliseconds(1000));
    const Status status = (*group)->all_reduce(f32(values), ReduceOp::kSum);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(
        status.error().message.find("all_reduce #2 of a sub-group: not done on the GPU after 1 s"),
        std::string::npos)
        << status.error().message;
  });
}

TEST(NcclBackend, NamesRanksThatCallDifferentThingsWhereItIsAskedTo) {
  DeviceWorld world({.size = 3, .has_nccl = true, .check_mismatches = true});
  std::atomic<int> conflicts = 0;
  on_all(world.world(), [&](Communicator& comm) {
    std::vector<float> values(10, 1.f);
    ASSERT_TRUE(comm.all_reduce(f32(values), ReduceOp::kSum).ok());
    const Status status =
        comm.rank() == 2 ? comm.broadcast(f32(values), 1) : comm.all_reduce(f32(values), {});
    ASSERT_FALSE(status.ok());
    if (status.error().code == Code::kConflict) ++conflicts;
    EXPECT_NE(status.error().message.find("ranks differ: rank 0 in all_reduce #2 (10 x f32 SUM), "
                                          "rank 2 in broadcast #2 (10 x f32, root 1)"),
              std::string::npos)
        << status.error().message;
  });
  // The others may hear of it before they have seen it themselves.
  EXPECT_GE(conflicts, 1);
}

// Two ranks in one host's memory, that tell of themselves on boards.
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
  // "2/1": so many collectives of the group were entered and completed, the last of them this one.
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

TEST(NcclBackend, HearsOfAnAsynchronousErrorWhileNothingIsUnderWay) {
  DeviceWorld world({.size = 2, .has_nccl = true});
  on_all(world.world(), [](Communicator& comm) { ASSERT_TRUE(comm.barrier().ok()); });
  world.nccl().break_links("remote process exited");
  const SystemClock clock;
  const TimePoint begin = clock.now();
  on_all(world.world(), [&](Communicator& comm) {
    while (comm.health().ok() && clock.now() - begin < seconds(20)) std::this_thread::yield();
    const Status health = comm.health();
    ASSERT_FALSE(health.ok());
    EXPECT_NE(health.error().message.find("remote process exited"), std::string::npos)
        << health.error().message;
  });
}

TEST(NcclBackend, AFirstSendAndItsReceiveMeetWhicheverComesFirst) {
  for (const int late : {0, 1}) {
    DeviceWorld world({.size = 2, .has_nccl = true});
    std::latch first_is_in(1);
    on_all(world.world(), [&](Communicator& comm) {
      std::vector<float> values(10, static_cast<float>(comm.rank()));
      if (comm.rank() == late) first_is_in.wait();
      // start() itself waits for the other side.
      if (comm.rank() != late) first_is_in.count_down();
      const Status status =
          comm.rank() == 0 ? comm.send(f32(values), 1) : comm.receive(f32(values), 0);
      ASSERT_TRUE(status.ok()) << status.error().message;
      EXPECT_EQ(values, std::vector<float>(10, 0.f));
    });
  }
}

constexpr const char* kHowToConnect =
    "sends and receives between two ranks are given together, and groups of the same ranks first "
    "used in one order";

TEST(NcclBackend, SaysWhatToDoWhereFirstSendsWaitForEachOther) {
  DeviceWorld world({.size = 2, .has_nccl = true, .limit = milliseconds(500)});
  on_all(world.world(), [](Communicator& comm) {
    const int peer = 1 - comm.rank();
    std::vector<float> mine(10);
    std::vector<float> others(10);
    Work sending = comm.start_send(f32(mine), peer);
    Work receiving = comm.start_receive(f32(others), peer);
    const Status status = sending.wait();
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find(kHowToConnect), std::string::npos)
        << status.error().message;
    EXPECT_FALSE(receiving.wait().ok());
  });
}

// Connected or not: on one stream they run one behind the other. Who gives up first may tell the
// other before its own limit has passed.
TEST(NcclBackend, SaysWhatToDoWhereSendsIssuedApartWaitForEachOther) {
  DeviceWorld world({.size = 2, .has_nccl = true, .limit = milliseconds(1000)});
  std::atomic<int> gave_up{0};
  on_all(world.world(), [&](Communicator& comm) {
    const int peer = 1 - comm.rank();
    std::vector<float> mine(10, static_cast<float>(comm.rank()));
    std::vector<float> others(10);
    Call sending{.kind = Collective::kSend, .buffer = f32(mine), .rank = peer};
    Call receiving{.kind = Collective::kReceive, .buffer = f32(others), .rank = peer};
    ASSERT_TRUE(comm.run(std::array{sending, receiving}).ok());
    EXPECT_EQ(others, std::vector<float>(10, static_cast<float>(peer)));
    Work first = comm.start(sending);
    Work second = comm.start(receiving);
    const Status status = first.wait();
    ASSERT_FALSE(status.ok());
    if (status.error().code == Code::kTimeout) ++gave_up;
    EXPECT_NE(status.error().message.find("two ranks are given together"), std::string::npos)
        << status.error().message;
    EXPECT_FALSE(second.wait().ok());
  });
  EXPECT_GE(gave_up.load(), 1);
}

TEST(NcclBackend, SaysWhatToDoWhereGroupsAreFirstUsedInAnotherOrder) {
  DeviceWorld world({.size = 2, .has_nccl = true, .limit = milliseconds(500)});
  on_all(world.world(), [](Communicator& comm) {
    std::array<std::unique_ptr<Communicator>, 2> groups;
    for (auto& group : groups) {
      auto made = comm.sub_group({0, 1});
      ASSERT_TRUE(made.ok());
      group = std::move(*made);
    }
    std::vector<float> values(10);
    const auto first = static_cast<size_t>(comm.rank());
    const Status status = groups[first]->all_reduce(f32(values), ReduceOp::kSum);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find("groups of the same ranks are first used in one order"),
              std::string::npos)
        << status.error().message;
    EXPECT_FALSE(groups[1 - first]->all_reduce(f32(values), ReduceOp::kSum).ok());
  });
}

TEST(NcclBackend, OfOneRankNeedsNobody) {
  DeviceWorld world({.size = 1, .has_nccl = true});
  std::vector<float> values = {0.f, 2.f, -3.f};
  ASSERT_TRUE(world[0].all_reduce(f32(values), ReduceOp::kLor).ok());
  EXPECT_EQ(values, (std::vector<float>{0.f, 1.f, 1.f}));
  ASSERT_TRUE(world[0].barrier().ok());
}

// As the groups of a mesh's axes do of which a rank has many, and the world beside them.
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
      // A group that is made and never used.
      auto group = comm.sub_group({0, 1});
      ASSERT_TRUE(group.ok());
    });
    world.drop();
    EXPECT_EQ(world.nccl().alive(), 0);
  }
}

}  // namespace
}  // namespace lockstep
