#include "tests/agent/comm/worlds.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "common/base/check.h"

namespace lockstep::test {
namespace {

int port_of(int fd) {
  sockaddr_in address{};
  socklen_t bytes = sizeof address;
  CHECK(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0);
  return ntohs(address.sin_port);
}

// Empty, as the agent makes it.
int make_memory() {
  const int fd = ::memfd_create("comm-test", 0);
  CHECK(fd >= 0);
  return fd;
}

}  // namespace

std::string name_of(Transport transport) {
  switch (transport) {
    case Transport::kThreads:
      return "Threads";
    case Transport::kShared:
      return "Shared";
    case Transport::kTcp:
      return "Tcp";
    case Transport::kMixed:
      return "Mixed";
  }
  return "Unknown";
}

Meeting::Meeting(Transport transport, int size) : options_(static_cast<size_t>(size)) {
  const int nodes = transport == Transport::kTcp ? size : transport == Transport::kMixed ? 2 : 1;
  const int per_node = (size + nodes - 1) / nodes;
  std::vector<PeerAddress> peers;
  for (int rank = 0; rank < size; ++rank) {
    const int node = rank / per_node;
    const std::string host = "127.0.0." + std::to_string(2 + node);
    auto fd = listen_on(host, 0);
    CHECK(fd.ok());
    options(rank).listen_fd = *fd;
    peers.push_back({.host = host, .port = port_of(*fd), .node = node});
  }
  for (int node = 0; node < nodes && transport != Transport::kTcp; ++node) {
    const int local = std::min(per_node, size - node * per_node);
    if (local > 1) memory_.push_back(make_memory());
    for (int rank = node * per_node; rank < node * per_node + local; ++rank) {
      options(rank).shm_fd = local > 1 ? memory_.back() : -1;
    }
  }
  for (int rank = 0; rank < size; ++rank) {
    CommOptions& mine = options(rank);
    mine.rank = rank;
    mine.peers = peers;
    mine.job_uid = "0b5e-job";
    mine.round = 7;
    mine.world_hash = "9f2c";
    mine.key = transport_key("token", mine.round, mine.world_hash);
  }
}

Meeting::~Meeting() {
  for (const int fd : memory_) ::close(fd);
}

void Meeting::set_limits(Duration forming, Duration operation) {
  for (CommOptions& options : options_) {
    options.forming_limit = forming;
    options.operation_limit = operation;
  }
}

void Meeting::keep_only(int rank) {
  for (CommOptions& options : options_) {
    if (options.rank == rank) continue;
    ::close(options.listen_fd);
    options.listen_fd = -1;
  }
}

World make_world(Transport transport, int size, Duration operation_limit) {
  if (transport == Transport::kThreads) {
    auto world = make_thread_world(size, operation_limit);
    EXPECT_TRUE(world.ok());
    return std::move(*world);
  }
  Meeting meeting(transport, size);
  meeting.set_limits(std::chrono::seconds(60), operation_limit);
  World world(static_cast<size_t>(size));
  on_ranks(size, [&](int rank) {
    auto made = make_communicator(meeting.options(rank));
    ASSERT_TRUE(made.ok()) << made.error().message;
    world[static_cast<size_t>(rank)] = std::move(*made);
  });
  return world;
}

void on_ranks(int size, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back([&body, rank] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

void on_all(World& world, const std::function<void(Communicator&)>& body) {
  on_ranks(static_cast<int>(world.size()),
           [&](int rank) { body(*world[static_cast<size_t>(rank)]); });
}

}  // namespace lockstep::test
