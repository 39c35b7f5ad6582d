// Servers in processes of their own that are killed, stopped and started again; strangers.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "tests/agent/rpc/support.h"

namespace lockstep::rpc {
namespace {

using test::bytes_of;
using test::Path;
using test::text_of;

const Method kEcho("echo", Repeats::kAllowed);
const Method kOnce("once", Repeats::kNever);
const Method kNothing("nothing", Repeats::kNever);

void serve(const test::ServerSetup& setup, int listen_fd) {
  const auto server = test::make_server(setup, listen_fd);
  const auto echo = [](Request request) { request.answer({.head = request.head()}); };
  std::vector<Request> kept;
  server->add(kEcho, echo);
  server->add(kOnce, echo);
  server->add(kNothing, [&](Request request) { kept.push_back(std::move(request)); });
  CHECK(server->start().ok());
  ::pause();
}

// A server in a process of its own. The test keeps the listening socket, so that a second process
// can serve the same port.
struct ServerProcess {
  explicit ServerProcess(const test::ServerSetup& setup = {})
      : listener(test::listen_here()),
        process(std::make_unique<test::Child>([&] { serve(setup, listener.fd); })) {}
  test::Listener listener;
  std::unique_ptr<test::Child> process;
};

Limits impatient() {
  Limits limits = test::quick_limits();
  limits.silence_limit = std::chrono::seconds(3);
  limits.reconnect_limit = std::chrono::seconds(3);
  limits.handshake_limit = std::chrono::seconds(2);
  return limits;
}

Status say(const Peer& peer, const Method& method = kEcho) {
  Call call = peer.call(method, {.head = bytes_of("hello")});
  TRY(call.wait());
  EXPECT_EQ(text_of(call.head()), "hello");
  return {};
}

TEST(Processes, CallEachOtherOnEveryPath) {
  for (const Path path : test::all_paths()) {
    SCOPED_TRACE(test::path_name(path));
    const ServerProcess server({.path = path});
    const auto memory = SharedMemory::create(1 << 20);
    ASSERT_TRUE(memory.ok());
    const auto client = test::make_client({.path = path, .memory = {*memory}});
    const Peer peer = test::add_server(*client, server.listener.port, path);
    const Bytes body[] = {(*memory)->memory()};
    Call call = peer.call(kOnce, {.head = bytes_of("hello"), .body = body});
    ASSERT_TRUE(call.wait().ok()) << call.status().error().message;
    const bool shares = peer.path().find("shared memory") != std::string::npos;
    EXPECT_EQ(shares, path == Path::kSharedMemory) << peer.path();
  }
}

TEST(Processes, AreKilledWithoutHarmToOthers) {
  const ServerProcess dies({.rank = 3});
  const ServerProcess lives({.rank = 2});
  const auto client = test::make_client({.limits = impatient()});
  const Peer to_dying = test::add_server(*client, dies.listener.port);
  const Peer to_living = test::add_server(*client, lives.listener.port, Path::kTcp, 2);
  ASSERT_TRUE(say(to_dying).ok() && say(to_living).ok());
  Call waits = to_dying.call(kNothing, {});
  Call others = to_living.call(kNothing, {});
  ::close(dies.listener.fd);  // else the kernel accepts for the dead one
  dies.process->signal(SIGKILL);
  ASSERT_FALSE(waits.wait().ok());
  EXPECT_EQ(waits.status().error().code, Code::kUnavailable);
  EXPECT_EQ(waits.status().error().blame, Blame::kPeer);
  EXPECT_NE(waits.status().error().message.find("rank 3 at 127.0.0.1"), std::string::npos);
  EXPECT_NE(waits.status().error().message.find("could not be reached"), std::string::npos)
      << waits.status().error().message;
  EXPECT_TRUE(say(to_living).ok());
  EXPECT_FALSE(others.is_done());
}

TEST(Processes, ThatHangCountAsGone) {
  const ServerProcess hangs;
  const auto client = test::make_client({.limits = impatient()});
  const Peer peer = test::add_server(*client, hangs.listener.port);
  ASSERT_TRUE(say(peer).ok());
  hangs.process->signal(SIGSTOP);
  Call call = peer.call(kEcho, {});
  EXPECT_EQ(call.wait().error().code, Code::kUnavailable);
  hangs.process->signal(SIGCONT);
  // It is reached again, and does not know that it was thought to be gone.
  EXPECT_TRUE(test::eventually([&] { return say(peer).ok(); }));
}

TEST(Processes, ThatPauseLoseNothing) {
  const ServerProcess pauses;
  const auto client = test::make_client({});
  const Peer peer = test::add_server(*client, pauses.listener.port);
  ASSERT_TRUE(say(peer).ok());
  pauses.process->signal(SIGSTOP);
  Call call = peer.call(kOnce, {.head = bytes_of("hello")});
  std::thread wakes([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    pauses.process->signal(SIGCONT);
  });
  EXPECT_TRUE(call.wait().ok());
  wakes.join();
}

// A server that begins anew does not know what its predecessor executed. Reads are repeated; the
// rest fails.
TEST(Processes, ThatBeginAnewRepeatOnlyWhatMayRepeat) {
  ServerProcess server;
  const auto client = test::make_client({});
  const Peer peer = test::add_server(*client, server.listener.port);
  ASSERT_TRUE(say(peer).ok());
  server.process->signal(SIGSTOP);
  Call once = peer.call(kOnce, {.head = bytes_of("hello")});
  Call read = peer.call(kEcho, {.head = bytes_of("hello")});
  // The stopped process has them in its socket.
  server.process.reset();
  server.process =
      std::make_unique<test::Child>([&] { serve(test::ServerSetup(), server.listener.fd); });
  ASSERT_FALSE(once.wait().ok());
  EXPECT_NE(once.status().error().message.find("may have executed the call"), std::string::npos)
      << once.status().error().message;
  EXPECT_TRUE(read.wait().ok()) << read.status().error().message;
  EXPECT_TRUE(say(peer, kOnce).ok());
}

TEST(Processes, WithAnotherKeyAreRefused) {
  const ServerProcess server;
  const auto stranger = test::make_client({.limits = impatient(), .key = "wrong"});
  const Status refused = say(test::add_server(*stranger, server.listener.port));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("wrong token"), std::string::npos)
      << refused.error().message;
  const auto client = test::make_client({});
  EXPECT_TRUE(say(test::add_server(*client, server.listener.port)).ok());
}

TEST(Processes, ThatExpectAnotherRankAreRefused) {
  const ServerProcess server;
  const auto client = test::make_client({.limits = impatient()});
  const Status refused = say(test::add_server(*client, server.listener.port, Path::kTcp, 1));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("is not the rank expected at this address"),
            std::string::npos)
      << refused.error().message;
}

TEST(Processes, AgreeOnEncryption) {
  if (test::socket_paths().size() == 1) GTEST_SKIP() << "this build does not encrypt";
  const ServerProcess server({.path = Path::kEncrypted});
  const auto client = test::make_client({.limits = impatient()});
  const Status refused = say(test::add_server(*client, server.listener.port));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("does not agree on encryption"), std::string::npos)
      << refused.error().message;
}

}  // namespace
}  // namespace lockstep::rpc
