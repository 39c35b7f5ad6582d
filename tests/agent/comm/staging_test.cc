#include "agent/comm/gpu/staging.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "tests/agent/comm/gpu/device_world.h"

namespace lockstep::comm {
namespace {

using test::DeviceWorld;
using test::f32;
using test::on_all;

// The cases of all backends with small parts, so that most operations have several.
TEST(Staging, GivesWhatAPlainLoopGivesForEveryPairOfFactorsThatThereCanBe) {
  test::run_covering_array({.staging_bytes = 10'000}, 20261123);
}

TEST(Staging, TakesTheSameMemoryForAnOperationOfAnySizeAndAgainForTheNext) {
  constexpr size_t kPart = 4096;
  DeviceWorld world({.size = 2, .staging_bytes = kPart});
  on_all(world.world(), [&](Communicator& comm) {
    for (int turn = 0; turn < 3; ++turn) {
      std::vector<float> values(100'000, 1.f);
      ASSERT_TRUE(comm.all_reduce(f32(values), ReduceOp::kSum).ok());
      EXPECT_EQ(values, std::vector<float>(values.size(), 2.f));
    }
  });
  EXPECT_EQ(world.device(0).pinned_bytes(), 4 * kPart);
}

TEST(Staging, TakesTheMemoryOfALargeOperationAgainAfterASmallOne) {
  DeviceWorld world({.size = 2, .staging_bytes = 65'536});
  size_t first = 0;
  for (const size_t count : {5'000, 9, 4'999, 16, 5'000, 1}) {
    on_all(world.world(), [&](Communicator& comm) {
      std::vector<float> values(count, 1.f);
      ASSERT_TRUE(comm.all_reduce(f32(values), ReduceOp::kSum).ok());
      EXPECT_EQ(values, std::vector<float>(count, 2.f));
    });
    if (first == 0) first = world.device(0).pinned_bytes();
    EXPECT_EQ(world.device(0).pinned_bytes(), first) << count;
  }
  EXPECT_GE(first, 2 * 5'000 * sizeof(float));
}

TEST(Staging, EndsALargeOperationWhileTheNextOneWaitsForItsStream) {
  DeviceWorld world({.size = 2, .staging_bytes = 1024});
  on_all(world.world(), [&](Communicator& comm) {
    std::vector<float> large(100'000, 1.f);
    std::vector<float> small(10, 1.f);
    std::latch is_over(1);
    Work first = comm.start_all_reduce(f32(large), ReduceOp::kSum);
    world.stream(comm.rank()).issue([&] { is_over.wait(); });
    Work second = comm.start_all_reduce(f32(small), ReduceOp::kSum);
    EXPECT_TRUE(first.wait(std::chrono::seconds(20)).ok());
    is_over.count_down();
    EXPECT_TRUE(second.wait().ok());
    EXPECT_EQ(large, std::vector<float>(large.size(), 2.f));
  });
}

TEST(Staging, ComesBehindWhatTheStreamHasAndBeforeWhatComesAfterItsEnd) {
  DeviceWorld world({.size = 3});
  on_all(world.world(), [&](Communicator& comm) {
    std::vector<float> values(1000, 0.f);
    std::vector<float> seen(1000, 0.f);
    test::FakeStream& stream = world.stream(comm.rank());
    stream.issue([&] { std::fill(values.begin(), values.end(), 1.f); });
    ASSERT_TRUE(comm.all_reduce(f32(values), ReduceOp::kSum).ok());
    stream.issue([&] { seen = values; });
    stream.drain();
    EXPECT_EQ(seen, std::vector<float>(1000, 3.f));
  });
}

TEST(Staging, DoesNotWriteOverWhatTheStreamStillReads) {
  DeviceWorld world({.size = 2});
  on_all(world.world(), [&](Communicator& comm) {
    std::vector<float> values(100'000, static_cast<float>(comm.rank() + 5));
    std::vector<float> copy;
    if (comm.rank() == 1) {
      world.stream(1).issue([&] { copy = values; });
      ASSERT_TRUE(comm.receive(f32(values), 0).ok());
      EXPECT_EQ(values, std::vector<float>(values.size(), 5.f));
      EXPECT_EQ(copy, std::vector<float>(values.size(), 6.f));
    } else {
      ASSERT_TRUE(comm.send(f32(values), 1).ok());
    }
  });
}

// Each side waits for the first part of the other's second operation.
TEST(Staging, KeepsSendsAndReceivesUnderWayAllAtOnce) {
  DeviceWorld world({.size = 2, .staging_bytes = 256});
  on_all(world.world(), [&](Communicator& comm) {
    const int peer = 1 - comm.rank();
    std::vector<float> mine(5000, static_cast<float>(comm.rank()));
    std::vector<float> others(mine.size());
    std::vector<float> sum(5000, 1.f);
    Work reducing = comm.start_all_reduce(f32(sum), ReduceOp::kSum);
    Work receiving = comm.start_receive(f32(others), peer);
    Work sending = comm.start_send(f32(mine), peer);
    EXPECT_TRUE(receiving.wait().ok());
    EXPECT_TRUE(sending.wait().ok());
    EXPECT_TRUE(reducing.wait().ok());
    EXPECT_EQ(others, std::vector<float>(mine.size(), static_cast<float>(peer)));
    EXPECT_EQ(sum, std::vector<float>(sum.size(), 2.f));
  });
}

// The first parts are equally long.
TEST(Staging, NamesRanksThatCallDifferentSizes) {
  for (const int calls : {1, 2}) {
    DeviceWorld world({.size = 2, .limit = std::chrono::seconds(20), .staging_bytes = 4096});
    on_all(world.world(), [&](Communicator& comm) {
      std::vector<float> values(comm.rank() == 0 ? 2048 : 1024, 1.f);
      Status status;
      for (int call = 0; status.ok() && call < (comm.rank() == 0 ? 1 : calls); ++call) {
        status = comm.all_reduce(f32(values), ReduceOp::kSum);
      }
      // A rank that has received nothing from the other one hears of it in its next operation.
      if (status.ok()) status = comm.barrier();
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.error().code, Code::kConflict) << status.error().message;
      EXPECT_NE(status.error().message.find("(2048 x f32 SUM"), std::string::npos)
          << status.error().message;
      EXPECT_NE(status.error().message.find("(1024 x f32 SUM"), std::string::npos)
          << status.error().message;
      EXPECT_EQ(values[0], 1.f);
    });
  }
}

TEST(Staging, MovesBlocksOfAnyCountsFromEachToEach) {
  DeviceWorld world({.size = 3, .staging_bytes = 8});
  on_all(world.world(), [&](Communicator& comm) {
    std::vector<int64_t> send(3, comm.rank() + 1);
    std::vector<int64_t> receive = {1, 2, 3};
    std::vector<int32_t> input(static_cast<size_t>(3 * (comm.rank() + 1)), comm.rank());
    std::vector<int32_t> output(6, -1);
    Work work = comm.start(
        {.kind = Collective::kAllToAll,
         .buffer = {.data = output.data(), .type = DataType::kI32, .input = input.data()},
         .send_counts = send,
         .receive_counts = receive});
    // Counts are read before the call returns.
    std::fill(send.begin(), send.end(), 1000);
    ASSERT_TRUE(work.wait().ok());
    EXPECT_EQ(output, (std::vector<int32_t>{0, 1, 1, 2, 2, 2}));
  });
}

TEST(Staging, WakesEveryRankWhenOneAborts) {
  DeviceWorld world({.size = 3});
  std::latch past_barrier(3);
  on_all(world.world(), [&](Communicator& comm) {
    const bool is_past = comm.barrier().ok();
    past_barrier.arrive_and_wait();
    ASSERT_TRUE(is_past);
    if (comm.rank() == 2) return comm.abort("enough");
    std::vector<float> values(100'000);
    const Status status = comm.all_reduce(f32(values), ReduceOp::kSum);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find("aborted by rank 2: enough"), std::string::npos)
        << status.error().message;
    EXPECT_FALSE(comm.barrier().ok());
    world.device(comm.rank()).drain();
  });
}

TEST(Staging, TellsTheOthersWhenACopyFails) {
  DeviceWorld world({.size = 2, .staging_bytes = 1000});
  world.device(1).fail_after(3);
  on_all(world.world(), [&](Communicator& comm) {
    std::vector<float> values(10'000);
    const Status status = comm.all_reduce(f32(values), ReduceOp::kSum);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find("the fake device has failed"), std::string::npos)
        << status.error().message;
    world.device(comm.rank()).drain();
  });
}

TEST(Staging, ReturnsOnceTheCopiesBeforeOneThatFailedAreDone) {
  constexpr size_t kCount = size_t{1} << 22;  // so large that a copy takes milliseconds
  DeviceWorld world({.size = 2, .staging_bytes = 4 * kCount * sizeof(float)});
  // The copy in, and the first of two copies out.
  world.device(0).fail_after(2);
  on_all(world.world(), [&](Communicator& comm) {
    std::vector<float> mine(kCount, 1.f);
    std::vector<float> all(2 * kCount, 0.f);
    const Status status = comm.run(
        {.kind = Collective::kAllGather,
         .buffer = {
             .data = all.data(), .count = static_cast<int64_t>(kCount), .input = mine.data()}});
    if (comm.rank() == 0) {
      EXPECT_FALSE(status.ok());
      EXPECT_EQ(all[kCount - 1], 1.f);
    }
    world.device(comm.rank()).drain();
  });
}

TEST(Staging, EndsWithTheHostsErrorWhenARankDoesNotCome) {
  DeviceWorld world({.size = 2, .limit = std::chrono::milliseconds(1000)});
  on_all(world.world(), [&](Communicator& comm) {
    ASSERT_TRUE(comm.barrier().ok());
    if (comm.rank() == 1) return;
    std::vector<float> values(10);
    const Status status = comm.all_reduce(f32(values), ReduceOp::kSum);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Code::kTimeout);
    EXPECT_NE(status.error().message.find("rank 1"), std::string::npos) << status.error().message;
    EXPECT_EQ(comm.suspect(), 1);
  });
}

TEST(Staging, RefusesWhatTheHostWouldRefuseBeforeAnythingIsUnderWay) {
  DeviceWorld world({.size = 2, .staging_bytes = 64});
  on_all(world.world(), [&](Communicator& comm) {
    std::vector<float> values(1000, 1.f);
    const Status status =
        comm.all_reduce(f32(values), ReduceOp::kSum, {.algorithm = Algorithm::kByHost});
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Code::kInvalid);
    ASSERT_TRUE(comm.all_reduce(f32(values), ReduceOp::kSum, {.algorithm = Algorithm::kRing}).ok());
    EXPECT_EQ(values[0], 2.f);
  });
  EXPECT_EQ(world[1].describe(),
            "rank 1 of 2: shared memory 0; CUDA device 1: host memory, for a test");
}

TEST(DeviceCommunicator, RefusesOtherDevicesAndLeavesTheCpuToTheHost) {
  test::World hosts = test::make_world(test::Transport::kThreads, 2);
  std::vector<std::shared_ptr<test::FakeDevice>> devices;
  test::World world;
  for (int rank = 0; rank < 2; ++rank) {
    devices.push_back(std::make_shared<test::FakeDevice>(rank));
    auto made = make_device_communicator(std::move(hosts[static_cast<size_t>(rank)]),
                                         {.device = devices.back()->device()},
                                         {.device = devices.back(), .nccl = nullptr, .why = ""});
    ASSERT_TRUE(made.ok());
    world.push_back(std::move(made).value());
  }
  on_all(world, [](Communicator& comm) {
    std::vector<float> values(10, 1.f);
    ASSERT_TRUE(comm.all_reduce(f32(values), ReduceOp::kSum).ok());
    EXPECT_EQ(values[0], 2.f);
    CommBuffer other = f32(values);
    other.device = {kernels::DeviceType::kCuda, 7};
    const Status status = comm.all_reduce(other, ReduceOp::kSum);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Code::kInvalid);
    EXPECT_NE(status.error().message.find("CUDA device 7"), std::string::npos);
  });
}

TEST(DeviceCommunicator, SaysOnEveryRankThatThereIsNoGpu) {
  if (kernels::device_count(kernels::DeviceType::kCuda) > 0) GTEST_SKIP() << "there are GPUs here";
  test::World hosts = test::make_world(test::Transport::kThreads, 2);
  test::on_ranks(2, [&](int rank) {
    const auto made = make_device_communicator(std::move(hosts[static_cast<size_t>(rank)]),
                                               {.device = {kernels::DeviceType::kCuda, rank}});
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().message, "[comm] every rank needs a GPU, but rank 0 has none");
  });
}

}  // namespace
}  // namespace lockstep::comm
