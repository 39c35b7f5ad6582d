#include "common/api/round_channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/api/servers_view.h"

namespace lockstep {
namespace {

class RoundChannel : public ::testing::Test {
 protected:
  void SetUp() override {
    auto ends = make_round_channel();
    ASSERT_TRUE(ends.ok());
    agent_ = (*ends)[0];
    worker_ = (*ends)[1];
  }
  void TearDown() override {
    close(agent_);
    close(worker_);
  }

  int agent_ = -1;
  int worker_ = -1;
};

TEST_F(RoundChannel, TellsTheAgentThatARankHasLeft) {
  EXPECT_FALSE(receive_left(agent_).has_value()) << "and does not block";
  ASSERT_TRUE(send_left(worker_, {.round = 7, .exit_code = 4}).ok());
  EXPECT_EQ(receive_left(agent_), (LeftRound{.round = 7, .exit_code = 4}));
  EXPECT_FALSE(receive_left(agent_).has_value());
}

TEST_F(RoundChannel, GivesTheWorkerItsNextRoundWithMemory) {
  const int memory = memfd_create("test", MFD_CLOEXEC);
  ASSERT_EQ(write(memory, "shared", 6), 6);
  ASSERT_TRUE(send_next(agent_, {.config_path = "/work/rank-3.json", .shm_fd = memory}).ok());
  auto next = receive_next(worker_, 1000);
  ASSERT_TRUE(next.ok() && next->has_value());
  EXPECT_EQ((*next)->config_path, "/work/rank-3.json");
  ASSERT_GE((*next)->shm_fd, 0);
  EXPECT_NE((*next)->shm_fd, memory);
  EXPECT_NE(fcntl((*next)->shm_fd, F_GETFD) & FD_CLOEXEC, 0);
  char bytes[6];
  ASSERT_EQ(pread((*next)->shm_fd, bytes, 6, 0), 6);
  EXPECT_EQ(std::string(bytes, 6), "shared");
  close((*next)->shm_fd);
  close(memory);
}

TEST_F(RoundChannel, GivesTheProcessTheNewestViewOfTheServers) {
  auto none = receive_view(worker_, 0);
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->has_value());
  const std::string longest(kServersViewBytesMax, '7');
  for (const std::string& text : {std::string("2:1,-2"), longest}) {
    ASSERT_EQ(send_view(agent_, text).value(), true);
    const auto view = receive_view(worker_, 1000);
    ASSERT_TRUE(view.ok());
    EXPECT_EQ(*view, text);
  }
  EXPECT_EQ(send_view(agent_, longest + "7").error().code, Code::kInvalid);
  EXPECT_EQ(send_view(agent_, "").error().code, Code::kInvalid);
}

TEST_F(RoundChannel, AViewWaitsForRoomWithoutBlocking) {
  const std::string longest(kServersViewBytesMax, '7');
  int sent = 0;
  while (*send_view(agent_, longest)) ++sent;
  EXPECT_GT(sent, 0);
  ASSERT_TRUE(receive_view(worker_, 0).ok());
  EXPECT_TRUE(*send_view(agent_, longest));
  close(worker_);
  worker_ = -1;
  EXPECT_EQ(send_view(agent_, longest).error().code, Code::kUnavailable);
}

TEST_F(RoundChannel, NeedsNoMemory) {
  ASSERT_TRUE(send_next(agent_, {.config_path = "/work/rank-0.json"}).ok());
  const auto next = receive_next(worker_, 1000);
  ASSERT_TRUE(next.ok() && next->has_value());
  EXPECT_EQ((*next)->shm_fd, -1);
}

TEST_F(RoundChannel, WaitsNoLongerThanItIsTold) {
  const auto next = receive_next(worker_, 1);
  ASSERT_TRUE(next.ok());
  EXPECT_FALSE(next->has_value());
}

TEST_F(RoundChannel, SaysThatTheOtherEndIsGone) {
  close(std::exchange(agent_, -1));
  const auto next = receive_next(worker_, 1000);
  ASSERT_FALSE(next.ok());
  EXPECT_EQ(next.error().code, Code::kUnavailable);
  EXPECT_FALSE(send_left(worker_, {}).ok()) << "without SIGPIPE";
}

TEST_F(RoundChannel, RefusesOtherMessages) {
  const std::string endless(5000, 'x');
  EXPECT_EQ(send_next(agent_, {.config_path = endless}).error().code, Code::kInvalid);
  EXPECT_EQ(send_next(agent_, {}).error().code, Code::kInvalid);
  ASSERT_EQ(send(agent_, endless.data(), endless.size(), 0), 5000);
  EXPECT_EQ(receive_next(worker_, 1000).error().code, Code::kInvalid);
  for (const size_t bytes : {sizeof(LeftRound) - 1, sizeof(LeftRound) + 1}) {
    ASSERT_EQ(send(worker_, endless.data(), bytes, 0), static_cast<ssize_t>(bytes));
    EXPECT_FALSE(receive_left(agent_).has_value()) << bytes;
  }
}

}  // namespace
}  // namespace lockstep
