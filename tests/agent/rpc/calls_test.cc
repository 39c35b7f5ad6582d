// Calls over every path: what is sent arrives, in any size and order.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "tests/agent/rpc/support.h"

namespace lockstep::rpc {
namespace {

using test::bytes_of;
using test::Path;
using test::text_of;
using test::value_bytes;
using test::value_of;

const Method kEcho("echo", Repeats::kAllowed);
const Method kStore("store", Repeats::kNever);
const Method kFetch("fetch", Repeats::kAllowed);
const Method kFail("fail", Repeats::kAllowed);
const Method kLater("later", Repeats::kAllowed);
const Method kUnknown("unknown", Repeats::kAllowed);

std::vector<std::byte> pattern(size_t bytes, uint64_t seed) {
  std::vector<std::byte> made(bytes);
  for (size_t i = 0; i < bytes; ++i)
    made[i] = static_cast<std::byte>((i * 2654435761u + seed) >> 7);
  return made;
}

constexpr size_t kSegmentBytes = size_t{48} << 20;

std::vector<std::shared_ptr<SharedMemory>> segments(Path path) {
  if (path != Path::kSharedMemory) return {};
  auto memory = SharedMemory::create(kSegmentBytes);
  CHECK(memory.ok());
  return {*memory};
}

// A server and a client in this process. Bodies come from shared memory if the path has it.
class Calls : public testing::TestWithParam<Path> {
 protected:
  Calls()
      : server_memory_(segments(GetParam())),
        client_memory_(segments(GetParam())),
        server_(test::make_server({.path = GetParam(), .memory = server_memory_}, listener_.fd)),
        client_(test::make_client({.path = GetParam(), .memory = client_memory_})),
        peer_(test::add_server(*client_, listener_.port, GetParam())) {
    server_->add(kEcho, [this](Request request) { echo(std::move(request)); });
    server_->add(kStore, [this](Request request) {
      stored_.assign(request.body().begin(), request.body().end());
      request.answer({.head = request.head()});
    });
    server_->add(kFail, [](Request request) { request.fail(Code::kConflict, "no"); });
    server_->add(kLater, [this](Request request) {
      const std::lock_guard lock(mutex_);
      threads_.emplace_back([request = std::move(request)]() mutable {
        const std::string said = text_of(request.head());
        request.answer({.head = bytes_of(said)});
      });
    });
    EXPECT_TRUE(server_->start().ok());
  }
  ~Calls() override {
    client_.reset();
    const std::lock_guard lock(mutex_);
    for (std::thread& thread : threads_) thread.join();
  }

  // Answers with the body, in two parts.
  void echo(Request request) {
    auto kept = std::make_shared<std::vector<std::byte>>();
    Bytes body;
    if (server_memory_.empty()) {
      kept->assign(request.body().begin(), request.body().end());
      body = *kept;
    } else {
      std::copy(request.body().begin(), request.body().end(), server_memory_[0]->memory().begin());
      body = server_memory_[0]->memory().first(request.body().size());
    }
    const Bytes parts[] = {body.first(body.size() / 3), body.subspan(body.size() / 3)};
    request.answer({.head = request.head(), .body = parts, .on_free = [kept, this] { ++freed_; }});
  }

  // Puts the bytes where they can be lent.
  Bytes place(const std::vector<std::byte>& bytes) {
    if (client_memory_.empty()) return bytes;
    std::copy(bytes.begin(), bytes.end(), client_memory_[0]->memory().begin());
    return client_memory_[0]->memory().first(bytes.size());
  }

  std::vector<std::shared_ptr<SharedMemory>> server_memory_;
  std::vector<std::shared_ptr<SharedMemory>> client_memory_;
  test::Listener listener_ = test::listen_here();
  std::atomic<int> freed_{0};
  std::vector<std::byte> stored_;
  std::mutex mutex_;
  std::vector<std::thread> threads_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Client> client_;
  Peer peer_;
};

TEST_P(Calls, CarryHeadsAndBodiesOfAnySize) {
  const size_t sizes[] = {
      0, 1, 63, 64, 65, 4096, 4097, 16384, 65536, 65537, 1u << 20, (1u << 20) + 7, 33u << 20};
  int calls = 0;
  for (const size_t size : sizes) {
    const std::vector<std::byte> sent = pattern(size, size);
    const Bytes body[] = {place(sent)};
    Call call = peer_.call(kEcho, {.head = bytes_of("head"), .body = body});
    ASSERT_TRUE(call.wait().ok()) << call.status().error().message;
    EXPECT_EQ(text_of(call.head()), "head");
    ASSERT_EQ(call.body_bytes(), size);
    EXPECT_TRUE(std::equal(sent.begin(), sent.end(), call.body().begin(), call.body().end()))
        << size;
    ++calls;
  }
  EXPECT_TRUE(test::eventually([&] { return freed_ == calls; }));
}

TEST_P(Calls, GatherTheRequestAndScatterTheReply) {
  const std::vector<std::byte> sent = pattern(3'000'000, 5);
  const Bytes whole = place(sent);
  std::vector<Bytes> parts;
  for (size_t at = 0, n = 1; at < whole.size(); at += n, n = n * 3 + 1) {
    n = std::min(n, whole.size() - at);
    parts.push_back(whole.subspan(at, n));
  }
  std::vector<std::byte> got(sent.size());
  const std::span<std::byte> all(got);
  const std::span<std::byte> into[] = {all.first(10), all.subspan(10, 0),
                                       all.subspan(10, 1'000'000), all.subspan(1'000'010)};
  Call call = peer_.call(kEcho, {.body = parts, .into = into});
  ASSERT_TRUE(call.wait().ok()) << call.status().error().message;
  EXPECT_EQ(call.body_bytes(), sent.size());
  EXPECT_TRUE(call.body().empty());
  EXPECT_EQ(got, sent);
}

TEST_P(Calls, ThatNeverRepeatTakeLargeBodies) {
  const std::vector<std::byte> sent = pattern(5'000'003, 9);
  const Bytes body[] = {place(sent)};
  Call call = peer_.call(kStore, {.head = bytes_of("x"), .body = body});
  ASSERT_TRUE(call.wait().ok()) << call.status().error().message;
  EXPECT_EQ(stored_, sent);
}

TEST_P(Calls, RunInAnyNumberAtATime) {
  std::vector<Call> calls;
  for (uint64_t i = 0; i < 3000; ++i) calls.push_back(peer_.call(kEcho, {.head = value_bytes(i)}));
  for (uint64_t i = 0; i < calls.size(); ++i) {
    ASSERT_TRUE(calls[i].wait().ok()) << calls[i].status().error().message;
    EXPECT_EQ(value_of<uint64_t>(calls[i].head()), i);
  }
}

TEST_P(Calls, AreMadeFromManyThreads) {
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 500; ++i) {
        const uint64_t value = t << 32 | i;
        Call call = peer_.call(i % 7 == 0 ? kLater : kEcho, {.head = value_bytes(value)});
        right += call.wait().ok() && value_of<uint64_t>(call.head()) == value ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 2000);
}

TEST_P(Calls, AreAnsweredLaterFromAnyThread) {
  Call call = peer_.call(kLater, {.head = bytes_of("later")});
  ASSERT_TRUE(call.wait().ok()) << call.status().error().message;
  EXPECT_EQ(text_of(call.head()), "later");
}

TEST_P(Calls, RunTheCallbackOnce) {
  std::atomic<int> times{0};
  Call call = peer_.call(kEcho, {.head = bytes_of("a"), .on_done = [&] { ++times; }});
  ASSERT_TRUE(call.wait().ok());
  EXPECT_TRUE(test::eventually([&] { return times == 1; }));
}

TEST_P(Calls, NameTheServerAndTheMethodInErrors) {
  Call call = peer_.call(kFail, {});
  const std::string where = "[rpc] rank 3 at 127.0.0.1:" + std::to_string(listener_.port);
  EXPECT_EQ(call.wait().error(), conflict(where + ": fail: no", Blame::kPeer));
  Call unknown = peer_.call(kUnknown, {});
  EXPECT_EQ(unknown.wait().error(), not_found(where + ": unknown: no such method", Blame::kPeer));
}

TEST_P(Calls, RefuseRepliesWithoutRoom) {
  const std::vector<std::byte> sent = pattern(2'000'000, 1);
  const Bytes body[] = {place(sent)};
  std::vector<std::byte> room(1000);
  const std::span<std::byte> into[] = {room};
  Call small = peer_.call(kEcho, {.body = body, .into = into});
  ASSERT_FALSE(small.wait().ok());
  EXPECT_EQ(small.status().error().code, Code::kInvalid);
  EXPECT_NE(small.status().error().message.find("a reply of 2000000 bytes, expected at most 1000"),
            std::string::npos);
  Call unplaced = peer_.call(kEcho, {.body = body, .reply_bytes_max = 10});
  EXPECT_EQ(unplaced.wait().error().code, Code::kInvalid);
  Call next = peer_.call(kEcho, {.head = bytes_of("next")});
  EXPECT_TRUE(next.wait().ok());
}

TEST_P(Calls, RefuseHeadsThatAreTooLong) {
  const std::vector<std::byte> head(kHeadMax + 1);
  Call call = peer_.call(kEcho, {.head = head});
  EXPECT_TRUE(call.is_done());
  EXPECT_EQ(call.wait().error().code, Code::kInvalid);
}

INSTANTIATE_TEST_SUITE_P(Over, Calls, testing::ValuesIn(test::all_paths()),
                         [](const auto& test) { return test::path_name(test.param); });

TEST(Calls, ReportWhetherMemoryIsShared) {
  const test::Listener listener = test::listen_here();
  const auto memory = segments(Path::kSharedMemory);
  const auto server =
      test::make_server({.path = Path::kSharedMemory, .memory = memory}, listener.fd);
  server->add(kFail, [](Request request) { request.fail(Code::kConflict, "no"); });
  ASSERT_TRUE(server->start().ok());
  const auto client = test::make_client({.path = Path::kSharedMemory, .memory = memory});
  const Peer peer = test::add_server(*client, listener.port, Path::kSharedMemory);
  EXPECT_EQ(peer.path(), "");
  Call call = peer.call(kFail, {});
  EXPECT_FALSE(call.wait().ok());
  EXPECT_NE(peer.path().find(", shared memory"), std::string::npos) << peer.path();
}

TEST(Calls, PutTheRequestWhereTheMethodSays) {
  const test::Listener listener = test::listen_here();
  const auto server = test::make_server({}, listener.fd);
  std::vector<std::byte> memory(1 << 20);
  server->add(kStore,
              [&](Request request) {
                EXPECT_EQ(request.body().data(), memory.data());
                request.answer({});
              },
              {.body_bytes_max = memory.size(),
               .place = [&](const Arrival& arrival) -> Result<std::span<std::byte>> {
                 if (text_of(arrival.head) == "nowhere") return unavailable("no place");
                 EXPECT_EQ(arrival.rank, 0u);
                 return std::span(memory);
               }});
  ASSERT_TRUE(server->start().ok());
  const auto client = test::make_client({});
  const Peer peer = test::add_server(*client, listener.port);
  const std::vector<std::byte> sent = pattern(1 << 20, 3);
  const Bytes body[] = {sent};
  Call call = peer.call(kStore, {.body = body});
  ASSERT_TRUE(call.wait().ok()) << call.status().error().message;
  EXPECT_EQ(memory, sent);
  Call nowhere = peer.call(kStore, {.head = bytes_of("nowhere"), .body = body});
  EXPECT_EQ(nowhere.wait().error().code, Code::kUnavailable);
  const std::vector<std::byte> larger = pattern((1 << 20) + 1, 3);
  const Bytes more[] = {larger};
  Call refused = peer.call(kStore, {.body = more});
  EXPECT_EQ(refused.wait().error().code, Code::kInvalid);
}

// A small call behind a large one on the same connection is answered before it.
TEST(Calls, OvertakeLargeOnes) {
  const test::Listener listener = test::listen_here();
  const auto server = test::make_server({}, listener.fd);
  std::vector<std::string> order;
  for (const Method* const method : {&kStore, &kEcho}) {
    server->add(*method, [&, method](Request request) {
      order.push_back(method->name);
      request.answer({});
    });
  }
  ASSERT_TRUE(server->start().ok());
  const auto client = test::make_client({});
  const Peer peer = test::add_server(*client, listener.port);
  ASSERT_TRUE(peer.call(kEcho, {}).wait().ok());
  order.clear();
  const std::vector<std::byte> large(48u << 20);
  const Bytes body[] = {large};
  Call slow = peer.call(kStore, {.body = body});
  Call fast = peer.call(kEcho, {});
  ASSERT_TRUE(fast.wait().ok() && slow.wait().ok());
  EXPECT_EQ(order, (std::vector<std::string>{"echo", "store"}));
}

TEST(Calls, FailIfTheHandlerDropsThem) {
  const test::Listener listener = test::listen_here();
  const auto server = test::make_server({}, listener.fd);
  server->add(kStore, [](Request) {});
  server->add(kFetch, [](Request request) {
    const std::vector<std::byte> long_head(kHeadMax + 1);
    request.answer({.head = long_head});
  });
  ASSERT_TRUE(server->start().ok());
  const auto client = test::make_client({});
  const Peer peer = test::add_server(*client, listener.port);
  EXPECT_EQ(peer.call(kStore, {}).wait().error().code, Code::kInternal);
  EXPECT_EQ(peer.call(kFetch, {}).wait().error().code, Code::kInternal);
}

}  // namespace
}  // namespace lockstep::rpc
