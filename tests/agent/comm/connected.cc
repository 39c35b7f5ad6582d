#include "tests/agent/comm/connected.h"

#include <gtest/gtest.h>
#include <poll.h>

#include "agent/comm/make_communicator.h"
#include "common/base/random.h"

namespace lockstep::test {

std::vector<std::byte> random_bytes(size_t bytes, uint64_t seed) {
  Random random(seed);
  std::vector<std::byte> made(bytes);
  for (std::byte& byte : made) byte = static_cast<std::byte>(random.next_u32());
  return made;
}

std::pair<comm::UniqueFd, comm::UniqueFd> connected_pair() {
  auto listener = comm::listen_socket({.host = "127.0.0.1", .port = 0});
  EXPECT_TRUE(listener.ok());
  const int port = comm::port_of(listener->get()).value();
  auto one = comm::begin_connect({.host = "127.0.0.1", .port = port});
  EXPECT_TRUE(one.ok());
  pollfd waiting{.fd = listener->get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&waiting, 1, 60'000), 1);
  auto other = comm::accept_one(listener->get());
  EXPECT_TRUE(other.ok() && other->fd);
  return {std::move(*one), std::move(other->fd)};
}

}  // namespace lockstep::test
