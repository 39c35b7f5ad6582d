// Worlds form while strangers open connections to every rank's port.
#include <dirent.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agent/comm/former.h"
#include "agent/comm/handshake.h"
#include "agent/comm/make_communicator.h"
#include "agent/comm/socket.h"
#include "common/base/check.h"
#include "common/base/sha256.h"
#include "tests/agent/comm/worlds.h"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::Meeting;
using test::on_ranks;
using test::Transport;

constexpr size_t kHelloBytes = 160;
constexpr size_t kChallengeBytes = 80;

std::vector<SocketAddress> addresses_of(Meeting& meeting) {
  std::vector<SocketAddress> addresses;
  for (const PeerAddress& peer : meeting.options(0).peers) {
    addresses.push_back({peer.host, peer.port});
  }
  return addresses;
}

UniqueFd connect_to(const SocketAddress& address) {
  auto fd = begin_connect(address);
  CHECK(fd.ok());
  pollfd writable{.fd = fd->get(), .events = POLLOUT, .revents = 0};
  CHECK(::poll(&writable, 1, 60'000) == 1 && connect_outcome(fd->get()).ok());
  return std::move(*fd);
}

void send_all(const UniqueFd& fd, std::span<const std::byte> bytes) {
  CHECK(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
        static_cast<ssize_t>(bytes.size()));
}

// Returns exactly as many bytes; fewer if the other side closes first.
std::vector<std::byte> receive(const UniqueFd& fd, size_t bytes) {
  std::vector<std::byte> got(bytes);
  size_t held = 0;
  while (held < bytes) {
    pollfd readable{.fd = fd.get(), .events = POLLIN, .revents = 0};
    if (::poll(&readable, 1, 60'000) != 1) break;
    const ssize_t n = ::recv(fd.get(), got.data() + held, bytes - held, 0);
    if (n <= 0) break;
    held += static_cast<size_t>(n);
  }
  got.resize(held);
  return got;
}

bool is_closed(const UniqueFd& fd) {
  return receive(fd, 1).empty();
}

// Rank 1 of a world of two, by hand, so that a test decides when it says what.
class HandmadeRank {
 public:
  HandmadeRank(const Identity& self, const std::string& nonce, const SocketAddress& rank_0)
      : self_(self),
        fd_(connect_to(rank_0)),
        handshake_(Handshake::client(self_, sha256(nonce), {0, Channel::kControl})) {}

  std::vector<std::byte> say() {
    const auto output = handshake_.output();
    std::vector<std::byte> said(output.begin(), output.end());
    send_all(fd_, said);
    handshake_.sent(said.size());
    return said;
  }
  // Takes the other side's next message; false if it closes instead.
  bool hear() {
    const std::vector<std::byte> got = receive(fd_, handshake_.wanted());
    return got.size() == handshake_.wanted() && handshake_.received(got).ok();
  }
  bool done() const { return handshake_.done(); }

 private:
  const Identity self_;  // outlives the handshake
  UniqueFd fd_;
  Handshake handshake_;
};

// Rank 0 of a world of two forms on a thread.
class Rank0 {
 public:
  explicit Rank0(Meeting& meeting)
      : addresses_(addresses_of(meeting)),
        thread_([this, listener = std::exchange(meeting.options(0).listen_fd, -1)] {
          formed_ =
              form_connections({.self = identity(0),
                                .addresses = addresses_,
                                .wants_data = {false, false},
                                .listener = UniqueFd(listener),
                                .deadline = SystemClock().now() + seconds(60),
                                .handshake_limit = seconds(60),
                                .nonce = [this] { return sha256(std::to_string(++nonces_)); }});
        }) {}
  static Identity identity(uint32_t rank) {
    return {.rank = rank,
            .size = 2,
            .round = 7,
            .job = sha256("job"),
            .world = sha256("world"),
            .key = "key"};
  }
  const SocketAddress& address() const { return addresses_[0]; }
  const Result<Connections>& wait() {
    thread_.join();
    return formed_;
  }

 private:
  std::vector<SocketAddress> addresses_;
  int nonces_ = 0;
  Result<Connections> formed_ = internal("not tried");
  std::jthread thread_;
};

// Opens connections that say nothing until one of them is evicted, and as many again.
void push_in(const SocketAddress& address) {
  std::deque<UniqueFd> strangers;
  const auto evicted = [&] {
    pollfd readable{.fd = strangers.front().get(), .events = POLLIN, .revents = 0};
    return ::poll(&readable, 1, 0) == 1;
  };
  do {
    strangers.push_back(connect_to(address));
  } while (!evicted());
  const size_t slots = strangers.size();
  for (size_t i = 0; i < slots; ++i) {
    strangers.push_back(connect_to(address));
    EXPECT_TRUE(is_closed(strangers.front()));
    strangers.pop_front();
  }
}

TEST(Flood, StrangersDoNotEvictAConnectionThatHasShownTheKey) {
  Meeting meeting(Transport::kTcp, 2);
  Rank0 rank_0(meeting);
  HandmadeRank rank_1(Rank0::identity(1), "a nonce", rank_0.address());
  rank_1.say();
  ASSERT_TRUE(rank_1.hear()) << "the challenge";
  push_in(rank_0.address());
  rank_1.say();
  EXPECT_TRUE(rank_1.hear()) << "the welcome";
  EXPECT_TRUE(rank_1.done());
  const auto& formed = rank_0.wait();
  EXPECT_TRUE(formed.ok()) << formed.error().message;
}

// A Hello proves nothing a second time: strangers may have overheard it.
TEST(Flood, OverheardHellosDoNotEvictTheirOwner) {
  Meeting meeting(Transport::kTcp, 2);
  Rank0 rank_0(meeting);
  HandmadeRank rank_1(Rank0::identity(1), "a nonce", rank_0.address());
  const std::vector<std::byte> hello = rank_1.say();
  ASSERT_TRUE(rank_1.hear()) << "the challenge";
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 200; ++i) {
    strangers.push_back(connect_to(rank_0.address()));
    send_all(strangers.back(), hello);
    EXPECT_EQ(receive(strangers.back(), kChallengeBytes).size(), kChallengeBytes);
  }
  EXPECT_TRUE(is_closed(strangers.front())) << "they have as many slots as other strangers";
  rank_1.say();
  EXPECT_TRUE(rank_1.hear()) << "the welcome";
  const auto& formed = rank_0.wait();
  EXPECT_TRUE(formed.ok()) << formed.error().message;
}

TEST(Flood, AnOverheardHelloThatIsFasterThanItsOwnersDoesNotKeepTheOwnerOut) {
  Meeting meeting(Transport::kTcp, 2);
  Rank0 rank_0(meeting);
  const Handshake overheard =
      Handshake::client(Rank0::identity(1), sha256("a nonce"), {0, Channel::kControl});
  const UniqueFd stranger = connect_to(rank_0.address());
  send_all(stranger, overheard.output());
  ASSERT_EQ(receive(stranger, kChallengeBytes).size(), kChallengeBytes);
  HandmadeRank rank_1(Rank0::identity(1), "a nonce", rank_0.address());
  rank_1.say();
  ASSERT_TRUE(rank_1.hear()) << "the challenge";
  rank_1.say();
  EXPECT_TRUE(rank_1.hear()) << "the welcome";
  const auto& formed = rank_0.wait();
  EXPECT_TRUE(formed.ok()) << formed.error().message;
}

// A process that opens connections to all addresses, one after the other and without end. It keeps
// some open: idle ones, and ones that have sent half a Hello, a whole one of garbage, or the
// beginning of a real one.
class Stranger {
 public:
  // Counts its connections there, in memory that it shares with the test.
  Stranger(const std::vector<SocketAddress>& targets, std::atomic<int64_t>& connections)
      : pid_(::fork()) {
    CHECK(pid_ >= 0);
    if (pid_ == 0) run(targets, connections);
  }
  ~Stranger() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

 private:
  static constexpr size_t kKeptOpen = 400;

  [[noreturn]] static void run(const std::vector<SocketAddress>& targets,
                               std::atomic<int64_t>& connections) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    Handshake real = Handshake::client(Rank0::identity(1), sha256("n"), {0, Channel::kControl});
    std::array<std::byte, kHelloBytes> garbage{};
    garbage.fill(std::byte{0x5a});
    const std::array<std::span<const std::byte>, 5> speeches{
        std::span<const std::byte>{}, std::span(garbage).first(80), garbage,
        real.output().first(80), real.output()};
    std::deque<UniqueFd> open;
    for (size_t i = 0;; ++i) {
      auto fd = begin_connect(targets[i % targets.size()]);
      if (!fd.ok()) continue;
      const auto speech = speeches[i / targets.size() % speeches.size()];
      if (!speech.empty()) ::send(fd->get(), speech.data(), speech.size(), MSG_NOSIGNAL);
      open.push_back(std::move(*fd));
      ++connections;
      if (open.size() > kKeptOpen) open.pop_front();
    }
  }

  pid_t pid_;
};

class SharedCount {
 public:
  SharedCount()
      : count_(static_cast<std::atomic<int64_t>*>(::mmap(nullptr, sizeof(std::atomic<int64_t>),
                                                         PROT_READ | PROT_WRITE,
                                                         MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    CHECK(count_ != MAP_FAILED);
  }
  ~SharedCount() { ::munmap(count_, sizeof *count_); }
  SharedCount(const SharedCount&) = delete;
  SharedCount& operator=(const SharedCount&) = delete;
  std::atomic<int64_t>& count() const { return *count_; }

 private:
  std::atomic<int64_t>* count_;  // zero at first
};

size_t open_descriptors() {
  std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
  size_t count = 0;
  while (::readdir(folder.get()) != nullptr) ++count;
  return count;
}

TEST(Flood, AWorldFormsInTheMidstOfIt) {
  constexpr int kRanks = 4;
  constexpr int64_t kConnections = 20'000;
  Meeting meeting(Transport::kTcp, kRanks);
  meeting.set_limits(seconds(60), seconds(60));
  std::fflush(stdout);
  std::vector<std::unique_ptr<Stranger>> strangers;
  const SharedCount connections;
  for (int i = 0; i < 3; ++i) {
    strangers.push_back(std::make_unique<Stranger>(addresses_of(meeting), connections.count()));
  }
  // Every port is taken by storm before any rank serves it.
  for (int rank = 0; rank < kRanks; ++rank) {
    pollfd waiting{.fd = meeting.options(rank).listen_fd, .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&waiting, 1, 60'000), 1);
  }
  const size_t descriptors_before = open_descriptors();
  const size_t heap_before = ::mallinfo2().uordblks;
  std::atomic<bool> formed{false};
  std::jthread world([&] {
    on_ranks(kRanks, [&](int rank) {
      // Until then the others serve strangers alone.
      while (rank == 2 && connections.count() < kConnections) std::this_thread::yield();
      const auto made = make_communicator(meeting.options(rank));
      ASSERT_TRUE(made.ok()) << made.error().message;
      EXPECT_TRUE((*made)->barrier().ok());
    });
    formed = true;
  });
  size_t descriptors_most = 0;
  size_t heap_most = 0;
  while (!formed) {
    descriptors_most = std::max(descriptors_most, open_descriptors());
    heap_most = std::max<size_t>(heap_most, ::mallinfo2().uordblks);
    std::this_thread::yield();
  }
  // Each rank: connections of its own, those under way, and strangers in a bounded number of slots.
  EXPECT_LT(descriptors_most, descriptors_before + kRanks * size_t{200});
  EXPECT_LT(heap_most, heap_before + kRanks * (size_t{4} << 20));
}

}  // namespace
}  // namespace lockstep::comm
