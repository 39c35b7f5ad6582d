// The effect on ranks when one of them fails, mostly with ranks as threads.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <thread>

#include "tests/agent/comm/worlds.h"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::make_world;
using test::Meeting;
using test::on_all;
using test::Transport;
using test::World;

CommBuffer f32(std::vector<float>& values) {
  return {
      .data = values.data(), .count = static_cast<int64_t>(values.size()), .type = DataType::kF32};
}

class OnEveryTransport : public testing::TestWithParam<Transport> {
 protected:
  World make(int size, Duration limit = seconds(60)) { return make_world(GetParam(), size, limit); }
};

TEST_P(OnEveryTransport, AbortWakesEveryWaitingRankWithItsReason) {
  World world = make(4);
  std::vector<std::string> messages(world.size());
  on_all(world, [&](Communicator& comm) {
    if (comm.rank() == 2) {
      // The others wait for this rank, which never enters.
      while (world[0]->counts().entered == 0 || world[1]->counts().entered == 0 ||
             world[3]->counts().entered == 0) {
        std::this_thread::yield();
      }
      comm.abort("the loss is not finite");
      return;
    }
    std::vector<float> values(300'000);
    const Status status = comm.all_reduce(f32(values), ReduceOp::kSum);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Code::kUnavailable);
    EXPECT_EQ(status.error().blame, Blame::kPeer);
    messages[static_cast<size_t>(comm.rank())] = status.error().message;
    EXPECT_EQ(comm.suspect(), 2);
  });
  for (const int rank : {0, 1, 3}) {
    EXPECT_EQ(messages[static_cast<size_t>(rank)],
              "[comm] all_reduce #1: aborted by rank 2: the loss is not finite");
  }
}

// Returns how long ranks 0 and 1 took to wake, in milliseconds, after another thread aborted rank
// 0. The abort comes this long after they have entered a collective that rank 2 never enters.
std::vector<double> delays_of_abort(World world, milliseconds asleep) {
  TimePoint aborted;
  std::vector<TimePoint> woken(2);
  std::thread other([&] {
    while (world[0]->counts().entered == 0 || world[1]->counts().entered == 0) {
      std::this_thread::yield();
    }
    if (asleep > milliseconds(0)) std::this_thread::sleep_for(asleep);
    aborted = SystemClock().now();
    world[0]->abort("enough");
  });
  on_all(world, [&](Communicator& comm) {
    if (comm.rank() == 2) return;
    std::vector<float> values(10);
    EXPECT_FALSE(comm.all_reduce(f32(values), ReduceOp::kSum).ok());
    woken[static_cast<size_t>(comm.rank())] = SystemClock().now();
  });
  other.join();
  std::vector<double> delays;
  for (const TimePoint at : woken) delays.push_back(to_seconds(at - aborted) * 1e3);
  return delays;
}

// Aborts immediately after the ranks have entered, when they may still spin, and when they have
// gone to sleep, which takes a second if nobody wakes them.
TEST_P(OnEveryTransport, AbortFromAnotherThreadWakesItsOwnRankAndAllOthersSoon) {
  for (const milliseconds asleep : {milliseconds(0), milliseconds(60)}) {
    std::vector<double> delays;
    for (int turn = 0; turn < 5; ++turn) {
      const std::vector<double> more = delays_of_abort(make(3), asleep);
      delays.insert(delays.end(), more.begin(), more.end());
    }
    std::sort(delays.begin(), delays.end());
    std::printf("awake %.2f ms after abort() (median of %zu), %.2f at most\n",
                delays[delays.size() / 2], delays.size(), delays.back());
    EXPECT_LT(delays[delays.size() / 2], 100.);
    EXPECT_LT(delays.back(), 1000.);
  }
}

TEST_P(OnEveryTransport, ALongReasonIsTheSameOnEveryRankAndEndsWithAWholeCharacter) {
  World world = make(3);
  std::string reason;
  while (reason.size() < 1000)
    reason +=
        "Verlust \xc3\xbc"
        "ber ";  // a two-byte character
  std::thread other([&] {
    while (world[0]->counts().entered == 0 || world[1]->counts().entered == 0) {
      std::this_thread::yield();
    }
    world[1]->abort(reason);
  });
  std::vector<std::string> messages(2);
  on_all(world, [&](Communicator& comm) {
    if (comm.rank() == 2) return;
    messages[static_cast<size_t>(comm.rank())] = comm.barrier().error().message;
  });
  other.join();
  EXPECT_EQ(messages[0], messages[1]);
  EXPECT_GT(messages[0].size(), 400u);
  EXPECT_NE(messages[0].back(), '\xc3');
}

TEST_P(OnEveryTransport, ASilenceLimitThatIsNoneIsTheOneThatWasMade) {
  World world = make(2, seconds(60));
  world[0]->set_silence_limit(Duration::zero());
  on_all(world, [](Communicator& comm) {
    if (comm.rank() == 1) std::this_thread::sleep_for(milliseconds(20));
    const Status status = comm.barrier();
    EXPECT_TRUE(status.ok()) << status.error().message;
  });
}

TEST_P(OnEveryTransport, AfterAnErrorEveryOperationReturnsIt) {
  World world = make(3);
  auto group = world[0]->sub_group({0, 1});
  ASSERT_TRUE(group.ok());
  world[0]->abort("enough");
  on_all(world, [&](Communicator& comm) {
    std::vector<float> values(10);
    const Status first = comm.barrier();
    ASSERT_FALSE(first.ok());
    EXPECT_EQ(first.error().message, "[comm] barrier #1: aborted by rank 0: enough");
    EXPECT_FALSE(comm.start_all_reduce(f32(values), ReduceOp::kSum).wait().ok());
    EXPECT_FALSE(comm.broadcast(f32(values), 1).ok());
    EXPECT_FALSE(comm.all_gather_value(1).ok());
    EXPECT_EQ(comm.counts().completed, 0u);
  });
  EXPECT_FALSE((*group)->barrier().ok());
  EXPECT_EQ((*group)->suspect(), 0);
}

TEST_P(OnEveryTransport, ARankThatNeverEntersIsNamedAfterTheTimeLimit) {
  // Long enough for waiting ranks to give signs of life even on a starved machine.
  World world = make(4, seconds(4));
  on_all(world, [&](Communicator& comm) { ASSERT_TRUE(comm.barrier().ok()); });
  on_all(world, [&](Communicator& comm) {
    if (comm.rank() == 3) return;
    std::vector<float> values(300'000);
    const Status status = comm.all_reduce(f32(values), ReduceOp::kSum);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Code::kTimeout) << status.error().message;
    EXPECT_EQ(status.error().blame, Blame::kPeerHung);
    EXPECT_EQ(comm.health().error().blame, Blame::kPeerHung);
    EXPECT_NE(status.error().message.find("[comm] all_reduce #2: rank 3 silent for "),
              std::string::npos)
        << status.error().message;
    EXPECT_EQ(comm.suspect(), 3);
    EXPECT_EQ(comm.counts().entered, 2u);
    EXPECT_EQ(comm.counts().completed, 1u);
  });
}

TEST_P(OnEveryTransport, ARankThatLeavesInPeaceIsNotWaitedFor) {
  World world = make(3);
  on_all(world, [&](Communicator& comm) {
    std::vector<float> values(100'000);
    ASSERT_TRUE(comm.all_reduce(f32(values), ReduceOp::kSum).ok());
  });
  on_all(world, [&](Communicator& comm) {
    if (comm.rank() == 1) {
      world[1].reset();
      return;
    }
    std::vector<float> values(100'000);
    const Status status = comm.all_reduce(f32(values), ReduceOp::kSum);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().message, "[comm] all_reduce #2: rank 1 left");
    EXPECT_EQ(comm.suspect(), 1);
  });
}

struct Mismatch {
  std::string what;
  std::function<Status(Communicator&, std::vector<float>&)> even;
  std::function<Status(Communicator&, std::vector<float>&)> odd;
  std::string named;
};

std::vector<Mismatch> mismatches() {
  const auto sum = [](Communicator& comm, std::vector<float>& values) {
    return comm.all_reduce(f32(values), ReduceOp::kSum);
  };
  return {
      {"another reduction", sum,
       [](Communicator& comm, std::vector<float>& values) {
         return comm.all_reduce(f32(values), ReduceOp::kMax);
       },
       "MAX"},
      {"another count", sum,
       [](Communicator& comm, std::vector<float>& values) {
         values.pop_back();
         return comm.all_reduce(f32(values), ReduceOp::kSum);
       },
       "39999 x f32"},
      {"another algorithm by the count", sum,
       [](Communicator& comm, std::vector<float>& values) {
         values.resize(5);
         return comm.all_reduce(f32(values), ReduceOp::kSum);
       },
       "5 x f32"},
      {"another type", sum,
       [](Communicator& comm, std::vector<float>& values) {
         return comm.all_reduce({.data = values.data(), .count = 40'000, .type = DataType::kI32},
                                ReduceOp::kSum);
       },
       "i32"},
      {"another operation", sum,
       [](Communicator& comm, std::vector<float>&) { return comm.barrier(); }, "barrier #1"},
      {"another root",
       [](Communicator& comm, std::vector<float>& values) {
         return comm.broadcast(f32(values), 0);
       },
       [](Communicator& comm, std::vector<float>& values) {
         return comm.broadcast(f32(values), 2);
       },
       "broadcast #1"},
  };
}

TEST_P(OnEveryTransport, AMismatchBetweenRanksIsNamed) {
  for (const Mismatch& mismatch : mismatches()) {
    World world = make(4);
    on_all(world, [&](Communicator& comm) {
      std::vector<float> values(40'000);
      Status status = (comm.rank() % 2 == 0 ? mismatch.even : mismatch.odd)(comm, values);
      // A root may have sent everything before the others noticed.
      if (status.ok()) status = comm.barrier();
      ASSERT_FALSE(status.ok()) << mismatch.what;
      EXPECT_EQ(status.error().code, Code::kConflict) << status.error().message;
      EXPECT_EQ(status.error().blame, Blame::kPeer);
      EXPECT_NE(status.error().message.find(mismatch.named), std::string::npos)
          << mismatch.what << ": " << status.error().message;
    });
  }
}

TEST_P(OnEveryTransport, WaitingForAWorkHasItsOwnTimeLimit) {
  World world = make(2);
  std::vector<float> values(50'000, 1.f);
  Work work = world[0]->start_all_reduce(f32(values), ReduceOp::kSum);
  EXPECT_FALSE(work.test());
  const Status early = work.wait(milliseconds(20));
  ASSERT_FALSE(early.ok());
  EXPECT_EQ(early.error().code, Code::kTimeout);
  EXPECT_EQ(early.error().message, "[comm] all_reduce #1: not done yet");
  std::vector<float> others(50'000, 2.f);
  EXPECT_TRUE(world[1]->all_reduce(f32(others), ReduceOp::kSum).ok());
  EXPECT_TRUE(work.wait().ok());
  EXPECT_EQ(values[49'999], 3.f);
}

TEST_P(OnEveryTransport, LeavingWithAnOperationUnderWayEndsIt) {
  World world = make(2);
  std::vector<float> values(50'000, 1.f);
  Work work = world[0]->start_all_reduce(f32(values), ReduceOp::kSum);
  world[0].reset();
  const Status status = work.wait();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "[comm] all_reduce #1: rank 0 left");
  EXPECT_FALSE(world[1]->barrier().ok());
}

INSTANTIATE_TEST_SUITE_P(Comm, OnEveryTransport,
                         testing::Values(Transport::kThreads, Transport::kShared, Transport::kTcp,
                                         Transport::kMixed),
                         [](const auto& info) { return name_of(info.param); });

// Runs ten times as fast as the machine's clock.
class FastClock final : public Clock {
 public:
  TimePoint now() const override { return begin_ + 10 * (machine_.now() - begin_); }
  WallTime wall_now() const override { return machine_.wall_now(); }

 private:
  SystemClock machine_;
  TimePoint begin_ = machine_.now();
};

TEST(Limits, GoByTheClockThatTheCommunicatorWasGiven) {
  const auto clock = std::make_shared<FastClock>();
  Meeting meeting(Transport::kShared, 2);
  meeting.set_limits(seconds(600), seconds(30));
  World world(2);
  test::on_ranks(2, [&](int rank) {
    meeting.options(rank).clock = clock;
    meeting.options(rank).handshake_limit = seconds(60);
    auto made = make_communicator(meeting.options(rank));
    ASSERT_TRUE(made.ok()) << made.error().message;
    world[static_cast<size_t>(rank)] = std::move(*made);
  });
  const SystemClock machine;
  const TimePoint begin = machine.now();
  std::vector<float> values(10);
  Work work = world[0]->start_all_reduce(f32(values), ReduceOp::kSum);
  while (!work.test() && machine.now() - begin < seconds(60)) std::this_thread::yield();
  EXPECT_LT(machine.now() - begin, seconds(25));
  const Status status = work.wait();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::kTimeout);
  EXPECT_NE(status.error().message.find("rank 1 silent for 3"), std::string::npos)
      << status.error().message;
}

TEST(SharedMemory, OfAnotherRoundOrTooSmallIsRefused) {
  Meeting meeting(Transport::kShared, 2);
  meeting.set_limits(seconds(60), seconds(60));
  World world(2);
  const int memory = ::dup(meeting.options(0).shm_fd);
  test::on_ranks(2, [&](int rank) {
    auto made = make_communicator(meeting.options(rank));
    ASSERT_TRUE(made.ok()) << made.error().message;
    world[static_cast<size_t>(rank)] = std::move(*made);
  });
  CommOptions later = meeting.options(0);
  later.listen_fd = -1;
  later.round = 8;
  later.shm_fd = memory;
  const auto stale = make_communicator(later);
  ASSERT_FALSE(stale.ok());
  EXPECT_EQ(stale.error().message, "[comm] the shared memory was used by another round");
  const int small = ::memfd_create("small", 0);
  ASSERT_EQ(::ftruncate(small, 4096), 0);
  later.shm_fd = small;
  const auto refused = make_communicator(later);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kInvalid);
  EXPECT_NE(refused.error().message.find("shared memory of 2 ranks needs"), std::string::npos);
  ::close(small);
  ::close(memory);
}

}  // namespace
}  // namespace lockstep::comm
