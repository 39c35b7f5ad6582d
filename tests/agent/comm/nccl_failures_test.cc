// How ranks on NCCL learn that one of them has left, failed, called something else, or does not
// arrive.
#include "agent/comm/gpu/nccl_backend.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "tests/agent/comm/gpu/device_world.h"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::DeviceWorld;
using test::f32;
using test::on_all;

// Every rank but the last is in an operation that the last one never enters.
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
    EXPECT_EQ(status.error().blame, code == Code::kTimeout ? Blame::kPeerHung : Blame::kPeer);
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
      world, [] {}, "all_reduce #2: not finished on the GPU after 1 s", Code::kTimeout);
}

TEST(NcclBackend, CountsTheLimitFromWhenTheStreamHasComeToTheOperation) {
  DeviceWorld world({.size = 2, .has_nccl = true, .limit = milliseconds(1000)});
  on_all(world.world(), [&](Communicator& comm) {
    ASSERT_TRUE(comm.barrier().ok());
    std::vector<float> values(10, 1.f);
    // Computing for longer than the limit does not count as silence.
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

// Until then, NCCL's kernels may write to the caller's memory.
TEST(NcclBackend, TellsOfACallThatFailedBehindWhatWasIssuedWhenNcclWasAborted) {
  DeviceWorld world({.size = 1, .has_nccl = true});
  std::vector<float> values(10, 1.f);
  ASSERT_TRUE(world[0].all_reduce(f32(values), ReduceOp::kAvg).ok());
  std::latch returned(1);
  world.stream(0).issue([&] { returned.wait(); });
  // The truth kernel of the first call is issued, the division of the second is refused.
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
  // Later calls are refused with this error.
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

// A worker sets the limit of its world, and reduces in a sub-group.
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
    EXPECT_NE(status.error().message.find(
                  "all_reduce #2 of a sub-group: not finished on the GPU after 1 s"),
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
  // Others may be told before they have found it themselves.
  EXPECT_GE(conflicts, 1);
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

}  // namespace
}  // namespace lockstep::comm
