// A connection on which one side has sent everything, and closes.
#include "agent/comm/tcp_link.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::comm {
namespace {

struct Ends {
  UniqueFd one;
  UniqueFd other;
};

Ends connected() {
  auto listener = listen_socket({.host = "127.0.0.1", .port = 0});
  EXPECT_TRUE(listener.ok());
  sockaddr_in address{};
  socklen_t bytes = sizeof address;
  ::getsockname(listener->get(), reinterpret_cast<sockaddr*>(&address), &bytes);
  auto one = begin_connect({.host = "127.0.0.1", .port = ntohs(address.sin_port)});
  EXPECT_TRUE(one.ok());
  pollfd waiting{.fd = listener->get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&waiting, 1, 60'000), 1);
  UniqueFd other(::accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
  EXPECT_TRUE(bool(other));
  return {std::move(*one), std::move(other)};
}

std::string congestion_control(int fd) {
  std::array<char, 32> name{};
  socklen_t bytes = name.size();
  EXPECT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &bytes), 0);
  return name.data();
}

// Whatever congestion control the machine uses for the network, even one that paces (BBR).
TEST(TcpLink, WhatStaysOnTheMachineIsNotPaced) {
  Ends ends = connected();
  const TcpLink link(1, std::move(ends.one));
  EXPECT_EQ(congestion_control(link.fd()), "reno");
}

// With unread input, a plain close() drops what is not sent yet.
TEST(TcpLink, WhatWasWrittenArrivesThoughSomethingUnreadIsLeftBehind) {
  Ends ends = connected();
  auto link = std::make_unique<TcpLink>(1, std::move(ends.one));
  const std::vector<std::byte> padding(63);
  ASSERT_EQ(::send(ends.other.get(), padding.data(), padding.size(), MSG_NOSIGNAL), 63);
  // Writes until the link is full: some of it is not sent before the other side reads.
  const std::vector<std::byte> block(size_t{1} << 20, std::byte{1});
  size_t written = 0;
  for (size_t taken = 1; taken > 0; written += taken) {
    const auto result = link->write({block});
    ASSERT_TRUE(result.ok());
    taken = *result;
  }
  size_t read = 0;
  std::thread reader([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::vector<std::byte> into(size_t{1} << 20);
    for (;;) {
      const ssize_t got = ::recv(ends.other.get(), into.data(), into.size(), 0);
      if (got <= 0) return;
      read += static_cast<size_t>(got);
    }
  });
  finish_sending({link->fd()}, std::chrono::seconds(10));
  link.reset();
  reader.join();
  EXPECT_EQ(read, written);
}

}  // namespace
}  // namespace lockstep::comm
