// First sends and groups connect two ranks: which orders work, and what is reported if one does
// not.
#include "agent/comm/gpu/nccl_backend.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <vector>

#include "tests/agent/comm/gpu/device_world.h"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using test::DeviceWorld;
using test::f32;
using test::on_all;

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
    "pass sends and receives between two ranks to one call; all ranks must first use groups of the "
    "same ranks in the same order";

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

// Connected or not, they run one after the other on one stream. The rank that gives up first may
// tell the other one before its own limit has passed.
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
    EXPECT_NE(status.error().message.find("between two ranks to one call"), std::string::npos)
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
    EXPECT_NE(status.error().message.find("first use groups of the same ranks in the same order"),
              std::string::npos)
        << status.error().message;
    EXPECT_FALSE(groups[1 - first]->all_reduce(f32(values), ReduceOp::kSum).ok());
  });
}

}  // namespace
}  // namespace lockstep::comm
