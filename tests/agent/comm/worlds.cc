#include "tests/agent/comm/worlds.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <thread>

#include "common/base/check.h"

namespace lockstep::test {
namespace {

// Makes the memory empty, as the agent does.
int make_memory() {
  const int fd = ::memfd_create("comm-test", MFD_ALLOW_SEALING);
  CHECK(fd >= 0);
  return fd;
}

std::vector<Meeting::Place> places_of(Transport transport, int size) {
  const int nodes = hosts_of(transport, size);
  const int per_node = (size + nodes - 1) / nodes;
  std::vector<Meeting::Place> places;
  for (int rank = 0; rank < size; ++rank) {
    const int node = rank / per_node;
    const std::string host = "127.0.0." + std::to_string(2 + node);
    auto fd = comm::listen_on(host, 0);
    CHECK(fd.ok());
    places.push_back({.host = host, .listen_fd = *fd, .node = node});
  }
  return places;
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

int hosts_of(Transport transport, int size) {
  if (transport == Transport::kTcp) return size;
  return transport == Transport::kMixed ? 2 : 1;
}

Meeting::Meeting(Transport transport, int size) : Meeting(places_of(transport, size)) {}

Meeting::Meeting(const std::vector<Place>& places) : options_(places.size()) {
  std::vector<comm::PeerAddress> peers;
  std::map<int, std::vector<size_t>> by_node;
  for (const Place& place : places) {
    by_node[place.node].push_back(peers.size());
    peers.push_back(
        {.host = place.host, .port = comm::port_of(place.listen_fd).value(), .node = place.node});
  }
  for (size_t rank = 0; rank < places.size(); ++rank) {
    comm::CommOptions& mine = options_[rank];
    mine.rank = static_cast<int>(rank);
    mine.listen_fd = places[rank].listen_fd;
    mine.peers = peers;
    mine.job_uid = "0b5e-job";
    mine.round = 7;
    mine.world_hash = "9f2c";
    mine.key = comm::transport_key("token", mine.round, mine.world_hash);
    mine.limits = Limits();
  }
  for (const auto& [node, ranks] : by_node) {
    if (ranks.size() < 2) continue;
    memory_.push_back(make_memory());
    for (const size_t rank : ranks) options_[rank].shm_fd = memory_.back();
  }
}

Meeting::~Meeting() {
  for (const int fd : memory_) ::close(fd);
}

void Meeting::set_limits(Duration forming, Duration operation) {
  for (comm::CommOptions& options : options_) {
    options.forming_limit = forming;
    options.operation_limit = operation;
  }
}

void Meeting::set_comm_limits(const comm::CommLimits& limits) {
  for (comm::CommOptions& options : options_) options.limits = limits;
}

void Meeting::keep_only(int rank) {
  for (comm::CommOptions& options : options_) {
    if (options.rank == rank) continue;
    ::close(options.listen_fd);
    options.listen_fd = -1;
  }
}

World make_world(Transport transport, int size, Duration operation_limit,
                 const comm::CommLimits& limits) {
  if (transport == Transport::kThreads) {
    auto world = comm::make_thread_world(size, operation_limit, {}, limits);
    EXPECT_TRUE(world.ok());
    return std::move(*world);
  }
  Meeting meeting(transport, size);
  meeting.set_limits(std::chrono::seconds(60), operation_limit);
  meeting.set_comm_limits(limits);
  World world(static_cast<size_t>(size));
  on_ranks(size, [&](int rank) {
    auto made = comm::make_communicator(meeting.options(rank));
    ASSERT_TRUE(made.ok()) << made.error().message;
    world[static_cast<size_t>(rank)] = std::move(*made);
  });
  return world;
}

void on_processes(Meeting& meeting, const std::function<void(int)>& prepare,
                  const std::function<void(comm::Communicator&)>& body) {
  std::vector<pid_t> pids;
  std::fflush(stdout);
  for (int rank = 0; rank < meeting.size(); ++rank) {
    const pid_t pid = ::fork();
    CHECK(pid >= 0);
    if (pid == 0) {
      meeting.keep_only(rank);
      prepare(rank);
      auto made = comm::make_communicator(meeting.options(rank));
      EXPECT_TRUE(made.ok()) << made.error().message;
      if (made.ok()) body(**made);
      if (made.ok()) made->reset();
      std::fflush(stdout);
      ::_exit(testing::Test::HasFailure() ? 1 : 0);
    }
    pids.push_back(pid);
  }
  for (int rank = 0; rank < meeting.size(); ++rank) ::close(meeting.options(rank).listen_fd);
  for (size_t rank = 0; rank < pids.size(); ++rank) {
    int status = 0;
    EXPECT_EQ(::waitpid(pids[rank], &status, 0), pids[rank]);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << "rank " << rank << " ended with status " << status;
  }
}

void on_ranks(int size, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back([&body, rank] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

void on_all(World& world, const std::function<void(comm::Communicator&)>& body) {
  on_ranks(static_cast<int>(world.size()),
           [&](int rank) { body(*world[static_cast<size_t>(rank)]); });
}

}  // namespace lockstep::test
