// How a world forms, and what strangers on the listening port cannot do.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <thread>

#include "agent/comm/former.h"
#include "agent/comm/socket.h"
#include "common/base/check.h"
#include "common/base/random.h"
#include "tests/agent/comm/worlds.h"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::Meeting;
using test::on_ranks;
using test::Transport;

using Formed = std::vector<Result<std::unique_ptr<Communicator>>>;

// Every rank tries to form, on a thread of its own.
Formed form(Meeting& meeting) {
  Formed formed;
  for (int rank = 0; rank < meeting.size(); ++rank) formed.emplace_back(internal("not tried"));
  on_ranks(meeting.size(), [&](int rank) {
    formed[static_cast<size_t>(rank)] = make_communicator(meeting.options(rank));
  });
  return formed;
}

bool mentions(const Error& error, const std::string& text) {
  return error.message.find(text) != std::string::npos;
}

TEST(Forming, ARankThatNeverComesIsNamed) {
  Meeting meeting(Transport::kTcp, 3);
  meeting.set_limits(milliseconds(300), seconds(60));
  const int silent = meeting.options(1).listen_fd;  // it listens, but nobody answers
  Formed formed;
  for (int rank = 0; rank < 3; ++rank) formed.emplace_back(internal("not tried"));
  on_ranks(3, [&](int rank) {
    if (rank == 1) return;
    formed[static_cast<size_t>(rank)] = make_communicator(meeting.options(rank));
  });
  ::close(silent);
  ASSERT_FALSE(formed[0].ok());
  EXPECT_EQ(formed[0].error().code, Code::kTimeout);
  EXPECT_EQ(formed[0].error().blame, Blame::kPeer);
  EXPECT_TRUE(mentions(formed[0].error(), "[comm] forming: rank 1 has not connected"))
      << formed[0].error().message;
  ASSERT_FALSE(formed[2].ok());
  EXPECT_TRUE(mentions(formed[2].error(), "no connection to rank 1 at 127.0.0.3:"))
      << formed[2].error().message;
}

TEST(Forming, ConnectsToARankThatListensLater) {
  Meeting meeting(Transport::kTcp, 2);
  meeting.set_limits(seconds(60), seconds(60));
  // Free the port; rank 1 is refused until rank 0 binds it itself.
  ::close(meeting.options(0).listen_fd);
  meeting.options(0).listen_fd = -1;
  std::atomic<bool> refused{false};
  on_ranks(2, [&](int rank) {
    if (rank == 0) {
      const auto& address = meeting.options(0).peers[0];
      while (!refused) {
        auto fd = begin_connect({address.host, address.port});
        refused = !fd.ok() || !connect_outcome(fd->get()).ok();
      }
    }
    const auto made = make_communicator(meeting.options(rank));
    EXPECT_TRUE(made.ok()) << made.error().message;
  });
}

TEST(Forming, AWrongTokenIsRefusedOnBothSides) {
  Meeting meeting(Transport::kTcp, 2);
  meeting.set_limits(milliseconds(300), seconds(60));
  meeting.options(1).key = transport_key("another token", 7, "9f2c");
  const Formed formed = form(meeting);
  ASSERT_FALSE(formed[0].ok());
  EXPECT_EQ(formed[0].error().code, Code::kTimeout);
  EXPECT_TRUE(mentions(formed[0].error(), "wrong token from 127.0.0.1"))
      << formed[0].error().message;
  ASSERT_FALSE(formed[1].ok());
  EXPECT_TRUE(mentions(formed[1].error(), "(wrong token)")) << formed[1].error().message;
}

TEST(Forming, AnotherRoundsKeyIsAWrongOneWithAReason) {
  Meeting meeting(Transport::kTcp, 2);
  meeting.set_limits(milliseconds(300), seconds(60));
  meeting.options(1).round = 6;
  meeting.options(1).key = transport_key("token", 6, "9f2c");
  const Formed formed = form(meeting);
  ASSERT_FALSE(formed[0].ok());
  EXPECT_TRUE(mentions(formed[0].error(),
                       "wrong token; it claims: rank 1 is in round 6, but this rank is in round 7"))
      << formed[0].error().message;
  ASSERT_FALSE(formed[1].ok());
  EXPECT_TRUE(
      mentions(formed[1].error(), "it claims: rank 0 is in round 7, but this rank is in round 6"))
      << formed[1].error().message;
}

// With one key for all rounds, ranks can prove to each other which one is late.
TEST(Forming, AnOlderRoundIsToldThatItIsObsolete) {
  for (const int stale : {0, 2}) {
    Meeting meeting(Transport::kTcp, 3);
    meeting.set_limits(milliseconds(500), seconds(60));
    meeting.options(stale).round = 6;
    const Formed formed = form(meeting);
    const auto& obsolete = formed[static_cast<size_t>(stale)];
    ASSERT_FALSE(obsolete.ok());
    EXPECT_EQ(obsolete.error().code, Code::kConflict) << obsolete.error().message;
    EXPECT_EQ(obsolete.error().blame, Blame::kPeer);
    EXPECT_TRUE(
        mentions(obsolete.error(), "is in round 7, but this rank is in round 6, which is obsolete"))
        << obsolete.error().message;
    EXPECT_FALSE(formed[1].ok());
    EXPECT_NE(formed[1].error().code, Code::kConflict) << formed[1].error().message;
    EXPECT_EQ(formed[1].error().blame, Blame::kPeer) << formed[1].error().message;
  }
}

TEST(Forming, AnotherHashOfTheSameRoundIsRefusedAtOnce) {
  Meeting meeting(Transport::kTcp, 2);
  meeting.set_limits(seconds(60), seconds(60));
  meeting.options(1).world_hash = "0000";
  for (const auto& result : form(meeting)) {
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, Code::kConflict);
    EXPECT_EQ(result.error().blame, Blame::kPeer);
    EXPECT_TRUE(mentions(result.error(), "has a different world for round 7"))
        << result.error().message;
  }
}

TEST(Forming, AnotherJobOrAnotherRankAtTheAddressIsRefused) {
  {
    Meeting meeting(Transport::kTcp, 2);
    meeting.set_limits(milliseconds(1000), seconds(60));
    meeting.options(1).job_uid = "another";
    const Formed formed = form(meeting);
    EXPECT_TRUE(mentions(formed[1].error(), "belongs to another job")) << formed[1].error().message;
  }
  Meeting meeting(Transport::kTcp, 3);
  meeting.set_limits(milliseconds(1000), seconds(60));
  std::swap(meeting.options(2).peers[0], meeting.options(2).peers[1]);
  const Formed formed = form(meeting);
  EXPECT_TRUE(mentions(formed[2].error(), "is not the rank expected at this address"))
      << formed[2].error().message;
}

TEST(Forming, ATakenPortIsNamed) {
  const auto holder = listen_socket({.host = "127.0.0.1", .port = 0});
  ASSERT_TRUE(holder.ok());
  sockaddr_in address{};
  socklen_t bytes = sizeof address;
  ::getsockname(holder->get(), reinterpret_cast<sockaddr*>(&address), &bytes);
  const int port = ntohs(address.sin_port);
  const auto second = listen_on("127.0.0.1", port);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Code::kConflict);
  EXPECT_EQ(second.error().blame, Blame::kPort);
  EXPECT_EQ(second.error().message,
            "[comm] port " + std::to_string(port) + " of 127.0.0.1 is taken");
}

TEST(Forming, WrongOptionsAreRefused) {
  CommOptions options;
  options.rank = 1;
  options.peers = {{.host = "127.0.0.1", .port = 0, .node = 0}};
  EXPECT_EQ(make_communicator(options).error().code, Code::kInvalid);
  options.rank = 0;
  options.peers.push_back({.host = "not-an-address", .port = 1, .node = 1});
  EXPECT_EQ(make_communicator(options).error().message, "[comm] the shared secret is empty");
  options.key = "k";
  options.peers[0].host = "localhost";
  EXPECT_EQ(make_communicator(options).error().message,
            "[comm] expected an IP address and a port from 0 to 65535, got localhost:0");
  options.peers[0].host = "127.0.0.1";
  options.listen_fd = ::dup(2);
  EXPECT_EQ(make_communicator(options).error().code, Code::kInvalid);
  options.listen_fd = -1;
  for (const CommLimits& wrong :
       {CommLimits{.window_bytes = 64, .frame_bytes_max = 64},
        CommLimits{.window_bytes = 1000, .frame_bytes_max = 512},
        CommLimits{.window_bytes = 512, .frame_bytes_max = 1024}, CommLimits{.frame_bytes_max = 0},
        CommLimits{.frame_bytes_max = 100}, CommLimits{.buffered_windows_max = 0}}) {
    options.limits = wrong;
    EXPECT_TRUE(
        mentions(make_communicator(options).error(), "a window at least as large as a frame"));
  }
}

// Connections that send nothing, the beginning of something, or garbage while a world forms.
class Strangers {
 public:
  explicit Strangers(SocketAddress target) : target_(std::move(target)) {}

  // Connects and sends `bytes` of garbage; the connection stays open.
  void send_garbage(size_t bytes, uint64_t seed) {
    auto fd = begin_connect(target_);
    ASSERT_TRUE(fd.ok());
    pollfd writable{.fd = fd->get(), .events = POLLOUT, .revents = 0};
    ASSERT_EQ(::poll(&writable, 1, 60'000), 1);
    Random random(seed);
    std::vector<uint8_t> garbage(bytes);
    for (uint8_t& byte : garbage) byte = static_cast<uint8_t>(random.next_u32());
    if (bytes > 0) ::send(fd->get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
    kept_.push_back(std::move(*fd));
  }

 private:
  SocketAddress target_;
  std::vector<UniqueFd> kept_;
};

TEST(Forming, GarbageAndSilentConnectionsDisturbNothing) {
  Meeting meeting(Transport::kTcp, 3);
  meeting.set_limits(seconds(60), seconds(60));
  const auto& address = meeting.options(0).peers[0];
  Strangers strangers({address.host, address.port});
  // More than there are slots, before any rank arrives, and of every length around that of a Hello.
  for (uint64_t i = 0; i < 60; ++i) strangers.send_garbage(i % 3 == 0 ? 0 : i * 7, i);
  for (const auto& result : form(meeting)) {
    EXPECT_TRUE(result.ok()) << result.error().message;
  }
}

TEST(Forming, SlowStrangersLoseTheirPlaceInTime) {
  Meeting meeting(Transport::kTcp, 2);
  meeting.set_limits(milliseconds(400), seconds(60));
  meeting.options(0).handshake_limit = milliseconds(50);
  const auto& address = meeting.options(0).peers[0];
  Strangers strangers({address.host, address.port});
  for (uint64_t i = 0; i < 3; ++i) strangers.send_garbage(0, i);
  ::close(meeting.options(1).listen_fd);
  const auto made = make_communicator(meeting.options(0));
  ASSERT_FALSE(made.ok());
  EXPECT_TRUE(
      mentions(made.error(), "refused 3 connections, the last: handshake timed out from 127."))
      << made.error().message;
}

// A proxy in front of a listening rank that carries bytes in both directions. On the first
// connection, it delays everything after the Hello.
class Relay {
 public:
  Relay(SocketAddress target, Duration held) : target_(std::move(target)), held_(held) {
    auto made = listen_socket({.host = "127.0.0.1", .port = 0});
    EXPECT_TRUE(made.ok());
    listener_ = std::move(*made);
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  int port() const {
    sockaddr_in address{};
    socklen_t bytes = sizeof address;
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &bytes);
    return ntohs(address.sin_port);
  }
  int connections() const { return connections_; }

 private:
  struct Pair {
    UniqueFd client;
    UniqueFd server;
    bool holds = false;
    size_t carried = 0;
    TimePoint until{};
    bool over = false;
  };

  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      accept_all();
      for (Pair& pair : pairs_) carry(pair);
      std::erase_if(pairs_, [](const Pair& pair) { return pair.over; });
      std::this_thread::sleep_for(milliseconds(1));
    }
  }
  void accept_all() {
    for (;;) {
      UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd) return;
      auto server = begin_connect(target_);
      if (!server.ok()) continue;
      pollfd writable{.fd = server->get(), .events = POLLOUT, .revents = 0};
      ::poll(&writable, 1, 60'000);
      pairs_.push_back({.client = std::move(fd), .server = std::move(*server)});
      pairs_.back().holds = ++connections_ == 1;
    }
  }
  void carry(Pair& pair) {
    constexpr size_t kHelloBytes = 160;
    const TimePoint now = SystemClock().now();
    size_t most = 4096;
    if (pair.holds && pair.carried < kHelloBytes) {
      most = kHelloBytes - pair.carried;
      pair.until = now + held_;
    } else if (pair.holds && now < pair.until) {
      most = 0;
    }
    if (most > 0) move(pair, pair.client, pair.server, most);
    if (!pair.over) move(pair, pair.server, pair.client, 4096);
  }
  static void move(Pair& pair, const UniqueFd& from, const UniqueFd& to, size_t most) {
    char bytes[4096];
    const ssize_t got = ::recv(from.get(), bytes, most, 0);
    if (got < 0 && errno == EAGAIN) return;
    const bool sent =
        got > 0 && ::send(to.get(), bytes, static_cast<size_t>(got), MSG_NOSIGNAL) == got;
    if (!sent) pair.over = true;
    if (sent && &from == &pair.client) pair.carried += static_cast<size_t>(got);
  }

  SocketAddress target_;
  Duration held_;
  UniqueFd listener_;
  std::atomic<int> connections_{0};
  std::vector<Pair> pairs_;
  std::jthread thread_;
};

TEST(Forming, AConnectionWhoseProofComesTooLateIsMadeAgain) {
  Meeting meeting(Transport::kTcp, 2);
  meeting.set_limits(seconds(20), seconds(20));
  const PeerAddress& address = meeting.options(0).peers[0];
  Relay relay({address.host, address.port}, milliseconds(900));
  meeting.options(0).handshake_limit = milliseconds(300);
  meeting.options(1).peers[0] = {.host = "127.0.0.1", .port = relay.port(), .node = 0};
  const Formed formed = form(meeting);
  for (const auto& result : formed) EXPECT_TRUE(result.ok()) << result.error().message;
  EXPECT_GE(relay.connections(), 3);
}

// The server decides, not the client: the server's last message may be late and still counts.
TEST(Forming, AConnectionWhoseLastWordIsLateIsMadeOnce) {
  Meeting meeting(Transport::kTcp, 2);
  meeting.set_limits(seconds(20), seconds(20));
  const PeerAddress& address = meeting.options(0).peers[0];
  Relay relay({address.host, address.port}, milliseconds(900));
  meeting.options(1).handshake_limit = milliseconds(300);
  meeting.options(1).peers[0] = {.host = "127.0.0.1", .port = relay.port(), .node = 0};
  const Formed formed = form(meeting);
  for (const auto& result : formed) EXPECT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(relay.connections(), 2);
}

TEST(Forming, WithoutDescriptorsLeftTheLimitIsNamed) {
  Meeting meeting(Transport::kTcp, 2);
  meeting.set_limits(seconds(20), seconds(20));
  std::fflush(stdout);
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    const int next = ::dup(0);
    const rlimit limit{static_cast<rlim_t>(next), static_cast<rlim_t>(next)};
    ::close(next);
    // As many as are open already: none can be accepted.
    bool named = ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
    const TimePoint begin = SystemClock().now();
    const auto made = make_communicator(meeting.options(0));
    named = named && !made.ok() && made.error().code == Code::kUnavailable &&
            made.error().blame == Blame::kUnknown &&
            mentions(made.error(), "Too many open files") &&
            mentions(made.error(), "the limit is " + std::to_string(next)) &&
            SystemClock().now() - begin < seconds(10);
    if (!named && !made.ok()) std::fprintf(stderr, "%s\n", made.error().message.c_str());
    ::_exit(named ? 0 : 1);
  }
  ::close(meeting.options(0).listen_fd);
  meeting.options(1).forming_limit = seconds(2);
  static_cast<void>(make_communicator(meeting.options(1)));
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// Allows `most` more descriptors than are open now.
void limit_descriptors(rlim_t most) {
  int highest = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) highest = fd;
  }
  // Fill holes.
  int next = ::dup(0);
  while (next <= highest) next = ::dup(0);
  ::close(next);
  const rlim_t limit = static_cast<rlim_t>(next) + most;
  const rlimit both{limit, limit};
  CHECK(::setrlimit(RLIMIT_NOFILE, &both) == 0);
}

TEST(Forming, StrangersWhoHaveAllDescriptorsMakeRoomForRanks) {
  Meeting meeting(Transport::kTcp, 3);
  meeting.set_limits(seconds(20), seconds(20));
  // The handshake limit shall not be what ends them.
  for (int rank = 0; rank < 3; ++rank) meeting.options(rank).handshake_limit = seconds(60);
  const PeerAddress& address = meeting.options(0).peers[0];
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 15; ++i) {
    auto fd = begin_connect({address.host, address.port});
    ASSERT_TRUE(fd.ok());
    silent.push_back(std::move(*fd));
  }
  std::fflush(stdout);
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    // For four connections of ranks and three descriptors of its own; two are left over.
    limit_descriptors(4 + 3 + 2);
    const auto made = make_communicator(meeting.options(0));
    if (!made.ok()) std::fprintf(stderr, "%s\n", made.error().message.c_str());
    ::_exit(made.ok() && (*made)->barrier().ok() ? 0 : 1);
  }
  ::close(meeting.options(0).listen_fd);
  on_ranks(3, [&](int rank) {
    if (rank == 0) return;
    const auto made = make_communicator(meeting.options(rank));
    ASSERT_TRUE(made.ok()) << made.error().message;
    static_cast<void>((*made)->barrier());
  });
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(TransportKey, DependsOnAllOfItsParts) {
  const std::string key = transport_key("token", 7, "9f2c");
  EXPECT_EQ(key.size(), 64u);
  EXPECT_NE(key, transport_key("other", 7, "9f2c"));
  EXPECT_NE(key, transport_key("token", 8, "9f2c"));
  EXPECT_NE(key, transport_key("token", 7, "9f2d"));
}

}  // namespace
}  // namespace lockstep::comm
