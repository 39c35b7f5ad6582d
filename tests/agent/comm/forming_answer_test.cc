// A refused rank reports why, even if nobody listens any more in the end.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agent/comm/former.h"
#include "agent/comm/handshake.h"
#include "agent/comm/socket.h"
#include "tests/agent/comm/worlds.h"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::Meeting;
using test::Transport;

// Stands still until it is released; then each reading advances it by ten milliseconds.
class HeldClock final : public Clock {
 public:
  TimePoint now() const override {
    return TimePoint() + milliseconds(let_go_ ? 10 * ++looks_ : int64_t{0});
  }
  WallTime wall_now() const override { return {}; }
  void let_go() { let_go_ = true; }

 private:
  std::atomic<bool> let_go_{false};
  mutable std::atomic<int64_t> looks_{0};
};

void wait_for(const UniqueFd& fd) {
  pollfd readable{.fd = fd.get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&readable, 1, 60'000), 1);
}

// Refuses the first rank that connects, as rank 0 of that job; then nobody listens.
void refuse_one(UniqueFd listener, const Identity& self) {
  wait_for(listener);
  const auto accepted = accept_one(listener.get());
  ASSERT_TRUE(accepted.ok() && accepted->fd);
  Handshake handshake = Handshake::server(self, sha256("a nonce"));
  std::vector<std::byte> hello(handshake.wanted());
  for (size_t got = 0; got < hello.size();) {
    wait_for(accepted->fd);
    const ssize_t n = ::recv(accepted->fd.get(), hello.data() + got, hello.size() - got, 0);
    ASSERT_GT(n, 0);
    got += static_cast<size_t>(n);
  }
  ASSERT_TRUE(handshake.received(hello).ok()) << "its verdict is in what it answers";
  const auto output = handshake.output();
  EXPECT_EQ(::send(accepted->fd.get(), output.data(), output.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(output.size()));
}

TEST(Forming, WhatARankHasAnsweredIsToldAlsoWhenNobodyListensAnyMore) {
  Meeting meeting(Transport::kTcp, 2);
  const Identity self{
      .rank = 1, .size = 2, .round = 7, .job = sha256("mine"), .world = sha256("w"), .key = "k"};
  Identity other = self;
  other.rank = 0;
  other.job = sha256("another");
  const auto clock = std::make_shared<HeldClock>();
  std::jthread rank_0([&] {
    refuse_one(UniqueFd(std::exchange(meeting.options(0).listen_fd, -1)), other);
    clock->let_go();
  });
  std::vector<SocketAddress> addresses;
  for (const PeerAddress& peer : meeting.options(1).peers) {
    addresses.push_back({peer.host, peer.port});
  }
  const auto formed =
      form_connections({.self = self,
                        .addresses = addresses,
                        .wants_data = {false, false},
                        .listener = UniqueFd(std::exchange(meeting.options(1).listen_fd, -1)),
                        .deadline = TimePoint() + milliseconds(300),
                        .handshake_limit = seconds(60),
                        .clock = clock,
                        .nonce = [] { return sha256("another nonce"); }});
  ASSERT_FALSE(formed.ok());
  const std::string& message = formed.error().message;
  EXPECT_NE(message.find("(Connection refused, earlier: rank 0 belongs to another job)"),
            std::string::npos)
      << message;
}

}  // namespace
}  // namespace lockstep::comm
