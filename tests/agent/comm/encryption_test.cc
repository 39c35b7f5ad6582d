// Worlds whose ranks encrypt what they send each other over TCP.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "agent/comm/make_communicator.h"
#include "agent/comm/socket.h"
#include "common/base/random.h"
#include "tests/agent/comm/cases.h"
#include "tests/agent/comm/covering.h"
#include "tests/agent/comm/small_frames.h"
#include "tests/agent/comm/worlds.h"

namespace lockstep::comm {
namespace {

using std::chrono::seconds;
using test::Meeting;
using test::on_all;
using test::on_ranks;
using test::Transport;
using test::World;

using Formed = std::vector<Result<std::unique_ptr<Communicator>>>;

Formed form(Meeting& meeting) {
  Formed formed;
  for (int rank = 0; rank < meeting.size(); ++rank) formed.emplace_back(internal("not tried"));
  on_ranks(meeting.size(), [&](int rank) {
    formed[static_cast<size_t>(rank)] = make_communicator(meeting.options(rank));
  });
  return formed;
}

World make_world(Transport transport, int size, bool encrypt, const CommLimits& limits = {}) {
  Meeting meeting(transport, size);
  meeting.set_limits(seconds(60), seconds(60));
  meeting.set_comm_limits(limits);
  for (int rank = 0; rank < size; ++rank) meeting.options(rank).encrypt = encrypt;
  World world;
  for (auto& made : form(meeting)) {
    EXPECT_TRUE(made.ok()) << made.error().message;
    world.push_back(made.ok() ? std::move(*made) : nullptr);
  }
  return world;
}

std::vector<float> random_values(int64_t count, uint64_t seed) {
  Random random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = random.normal();
  return values;
}

TEST(Encryption, EveryOperationHasItsResults) {
  const test::TestSetup setup{
      .transports = {Transport::kTcp, Transport::kMixed}, .hosts = 0, .has_limits = true};
  std::map<std::tuple<Transport, int, test::Limits>, std::vector<test::Case>> by_world;
  for (const test::Case& c : test::covering_array(setup, 11)) {
    by_world[{c.transport, c.shape.world, c.limits}].push_back(c);
  }
  for (const auto& [key, cases] : by_world) {
    const auto& [transport, size, limits] = key;
    World world = make_world(transport, size, true, limits);
    for (const test::Case& c : cases) {
      on_all(world, [&](Communicator& comm) { test::run_case(c, comm); });
      ASSERT_FALSE(testing::Test::HasFailure()) << describe(c);
    }
  }
}

TEST(Encryption, ChangesNoBitOfASum) {
  std::vector<std::vector<float>> sums[2];
  for (const bool encrypt : {false, true}) {
    World world = make_world(Transport::kMixed, 4, encrypt);
    sums[encrypt].resize(world.size());
    on_all(world, [&](Communicator& comm) {
      auto values = random_values(1'000'003, static_cast<uint64_t>(comm.rank()));
      const Status done = comm.all_reduce(
          {.data = values.data(), .count = 1'000'003, .type = DataType::kF32}, ReduceOp::kSum);
      ASSERT_TRUE(done.ok()) << done.error().message;
      sums[encrypt][static_cast<size_t>(comm.rank())] = std::move(values);
    });
  }
  EXPECT_EQ(sums[0], sums[1]);
}

TEST(Encryption, IsToldByThePath) {
  World world = make_world(Transport::kMixed, 4, true);
  EXPECT_EQ(world[0]->path_to(1).find("encrypted"), std::string::npos) << "in shared memory";
  EXPECT_NE(world[0]->path_to(2).find(", encrypted"), std::string::npos) << world[0]->path_to(2);
  on_all(world, [](Communicator& comm) { EXPECT_TRUE(comm.barrier().ok()); });
}

TEST(Encryption, RanksThatDoNotAgreeOnItFormNoWorld) {
  Meeting meeting(Transport::kTcp, 2);
  meeting.set_limits(std::chrono::milliseconds(300), seconds(60));
  meeting.options(1).encrypt = true;
  const Formed formed = form(meeting);
  ASSERT_FALSE(formed[0].ok());
  EXPECT_NE(formed[1].error().message.find("rank 0 does not agree on encryption"),
            std::string::npos)
      << formed[1].error().message;
}

// A proxy between rank 1 and rank 0, which reads everything and may change it.
class Middle {
 public:
  explicit Middle(SocketAddress target) : target_(std::move(target)) {
    auto made = listen_socket({.host = "127.0.0.1", .port = 0});
    EXPECT_TRUE(made.ok());
    listener_ = std::move(*made);
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  int port() const { return port_of(listener_.get()).value(); }
  // Flips a bit of the next byte that rank 1 sends in a message of at least 1 KiB.
  void tamper() { tampers_ = true; }
  bool has_seen(std::span<const std::byte> text) const {
    const std::lock_guard lock(mutex_);
    return std::search(seen_.begin(), seen_.end(), text.begin(), text.end()) != seen_.end();
  }

 private:
  struct Pair {
    UniqueFd client;
    UniqueFd server;
    bool over = false;
  };
  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::vector<pollfd> polled{{.fd = listener_.get(), .events = POLLIN, .revents = 0}};
      for (const Pair& pair : pairs_) {
        polled.push_back({.fd = pair.client.get(), .events = POLLIN, .revents = 0});
        polled.push_back({.fd = pair.server.get(), .events = POLLIN, .revents = 0});
      }
      ::poll(polled.data(), polled.size(), 5);
      accept();
      for (Pair& pair : pairs_) {
        move(pair, pair.client, pair.server);
        move(pair, pair.server, pair.client);
      }
      std::erase_if(pairs_, [](const Pair& pair) { return pair.over; });
    }
  }
  void accept() {
    auto accepted = accept_one(listener_.get());
    if (!accepted.ok() || !accepted->fd) return;
    auto server = begin_connect(target_);
    ASSERT_TRUE(server.ok());
    pollfd writable{.fd = server->get(), .events = POLLOUT, .revents = 0};
    ASSERT_EQ(::poll(&writable, 1, 60'000), 1);
    pairs_.push_back({std::move(accepted->fd), std::move(*server)});
  }
  void move(Pair& pair, const UniqueFd& from, const UniqueFd& to) {
    std::vector<std::byte> bytes(size_t{64} << 10);
    const Result<size_t> got = receive_some(from.get(), bytes);
    if (!got.ok()) pair.over = true;
    if (!got.ok() || *got == 0) return;
    bytes.resize(*got);
    if (&from == &pair.client && bytes.size() >= 1024 && tampers_.exchange(false)) {
      bytes[1000] ^= std::byte{1};
    }
    const std::lock_guard lock(mutex_);
    seen_.insert(seen_.end(), bytes.begin(), bytes.end());
    for (size_t sent = 0; sent < bytes.size();) {
      const Result<size_t> some = send_some(to.get(), {std::span(bytes).subspan(sent)});
      if (!some.ok()) pair.over = true;
      if (!some.ok()) return;
      sent += *some;
    }
  }

  SocketAddress target_;
  UniqueFd listener_;
  std::vector<Pair> pairs_;
  std::atomic<bool> tampers_{false};
  mutable std::mutex mutex_;
  std::vector<std::byte> seen_;
  std::jthread thread_;
};

// Two ranks with somebody in the middle.
struct Watched {
  explicit Watched(bool encrypt) : meeting(Transport::kTcp, 2) {
    meeting.set_limits(seconds(60), seconds(60));
    const PeerAddress& address = meeting.options(0).peers[0];
    middle = std::make_unique<Middle>(SocketAddress{address.host, address.port});
    meeting.options(1).peers[0] = {.host = "127.0.0.1", .port = middle->port(), .node = 0};
    for (const int rank : {0, 1}) meeting.options(rank).encrypt = encrypt;
    for (auto& made : form(meeting)) {
      EXPECT_TRUE(made.ok()) << made.error().message;
      world.push_back(std::move(*made));
    }
  }
  Meeting meeting;
  std::unique_ptr<Middle> middle;
  World world;
};

TEST(Encryption, HidesWhatRanksSend) {
  for (const bool encrypt : {false, true}) {
    Watched watched(encrypt);
    const std::vector<float> values = random_values(10'000, 5);
    on_all(watched.world, [&](Communicator& comm) {
      std::vector<float> mine = values;
      EXPECT_TRUE(
          comm.broadcast({.data = mine.data(), .count = 10'000, .type = DataType::kF32}, 1).ok());
      EXPECT_EQ(mine, values);
    });
    EXPECT_EQ(watched.middle->has_seen(std::as_bytes(std::span(values)).subspan(20'000, 16)),
              !encrypt);
  }
}

TEST(Encryption, AChangeOnTheWayEndsTheRoundAndNamesTheRank) {
  Watched watched(true);
  watched.middle->tamper();
  std::vector<std::string> messages(2);
  on_all(watched.world, [&](Communicator& comm) {
    std::vector<float> values = random_values(10'000, 5);
    const Status done =
        comm.broadcast({.data = values.data(), .count = 10'000, .type = DataType::kF32}, 1);
    const Status after = comm.barrier();
    messages[static_cast<size_t>(comm.rank())] =
        done.ok() ? after.error().message : done.error().message;
  });
  for (const std::string& message : messages) {
    EXPECT_NE(message.find("rank 1 sent a record that is not authentic"), std::string::npos)
        << message;
  }
}

}  // namespace
}  // namespace lockstep::comm
