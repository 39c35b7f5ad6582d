// Calls over connections that are cut all the time: those that never repeat are executed exactly
// once if they succeed, and at most once in any case. Histories of both sides are compared.
#include <gtest/gtest.h>
#include <signal.h>

#include <map>
#include <mutex>

#include "common/base/random.h"
#include "tests/agent/rpc/cutting_proxy.h"
#include "tests/agent/rpc/support.h"

namespace lockstep::rpc {
namespace {

using test::Path;
using test::value_bytes;
using test::value_of;

const Method kAdd("add", Repeats::kNever);
const Method kRead("read", Repeats::kAllowed);

// The calls that a server has executed.
struct History {
  std::map<uint64_t, int> times;  // by value
  uint64_t sum = 0;
};

// Adds the values of calls, each of which sends another one, and answers the sum; the body has the
// value in every place.
void serve_sum(Server& server, History& history) {
  server.add(kAdd, [&history](Request request) {
    const auto value = value_of<uint64_t>(request.head());
    for (size_t at = 0; at + 8 <= request.body().size(); at += 8) {
      if (value_of<uint64_t>(request.body().subspan(at)) != value) {
        return request.fail(Code::kInternal, "the body is damaged");
      }
    }
    ++history.times[value];
    history.sum += value;
    request.answer({.head = value_bytes(history.sum)});
  });
  server.add(kRead, [](Request request) {
    const std::vector<uint64_t> made(10'000, value_of<uint64_t>(request.head()));
    auto kept = std::make_shared<std::vector<uint64_t>>(made);
    const Bytes body[] = {std::as_bytes(std::span(*kept))};
    request.answer({.body = body, .on_free = [kept] {}});
  });
}

class Cuts : public testing::TestWithParam<Path> {};

TEST_P(Cuts, ExecuteEachCallOnce) {
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    SCOPED_TRACE(seed);
    const test::Listener listener = test::listen_here();
    History history;
    const auto server = test::make_server({.path = GetParam()}, listener.fd);
    serve_sum(*server, history);
    ASSERT_TRUE(server->start().ok());
    test::CuttingProxy proxy(
        {.target_port = listener.port, .seed = seed, .bytes_min = 200, .bytes_max = 800'000});
    const auto client = test::make_client({.path = GetParam()});
    const Peer peer = test::add_server(*client, proxy.port(), GetParam());
    Random random(seed);
    constexpr uint64_t kCalls = 200;
    std::vector<std::vector<uint64_t>> bodies;
    std::vector<Call> calls;
    std::map<uint64_t, int> sums;
    for (uint64_t i = 1; i <= kCalls; ++i) {
      bodies.emplace_back(random.below(4) == 0 ? random.below(8000) : random.below(20), i);
      const Bytes body[] = {std::as_bytes(std::span(bodies.back()))};
      calls.push_back(
          peer.call(random.below(5) == 0 ? kRead : kAdd, {.head = value_bytes(i), .body = body}));
      if (i % 40 == 0) calls[i - 1 - random.below(30)].wait().ok();
    }
    for (uint64_t i = 0; i < kCalls; ++i) {
      ASSERT_TRUE(calls[i].wait().ok()) << i << calls[i].status().error().message;
      if (calls[i].body_bytes() > 0) {
        for (size_t at = 0; at < calls[i].body().size(); at += 8) {
          ASSERT_EQ(value_of<uint64_t>(calls[i].body().subspan(at)), i + 1);
        }
      } else {
        ++sums[value_of<uint64_t>(calls[i].head())];
      }
    }
    EXPECT_GT(proxy.cuts(), 2);
    EXPECT_EQ(history.times.size(), sums.size());
    for (const auto& [value, times] : history.times) EXPECT_EQ(times, 1) << value;
    for (const auto& [sum, times] : sums) EXPECT_EQ(times, 1) << sum;
    EXPECT_EQ(server->counts().refused_connections, 0u);
    EXPECT_EQ(server->counts().sessions, 1u);
  }
}

// Calls that are cancelled or run out of time while connections are cut are executed at most once.
TEST_P(Cuts, ExecuteCallsThatFailAtMostOnce) {
  const test::Listener listener = test::listen_here();
  History history;
  const auto server = test::make_server({.path = GetParam()}, listener.fd);
  serve_sum(*server, history);
  ASSERT_TRUE(server->start().ok());
  test::CuttingProxy proxy(
      {.target_port = listener.port, .seed = 3, .bytes_min = 200, .bytes_max = 200'000});
  std::map<uint64_t, bool> succeeded;
  {
    const auto client = test::make_client({.path = GetParam()});
    const Peer peer = test::add_server(*client, proxy.port(), GetParam());
    Random random(3);
    for (uint64_t i = 1; i <= 300; ++i) {
      const std::vector<uint64_t> memory(random.below(5000), i);
      const Bytes body[] = {std::as_bytes(std::span(memory))};
      const auto timeout = std::chrono::microseconds(random.below(3) == 0 ? 0 : random.below(5000));
      Call call = peer.call(kAdd, {.head = value_bytes(i), .body = body, .timeout = timeout});
      if (random.below(3) == 0) call.cancel();
      succeeded[i] = call.wait().ok();
      if (succeeded[i] || random.below(2) == 0) continue;
      Call again = peer.call_again(std::move(call), kAdd, {.head = value_bytes(i), .body = body});
      succeeded[i] = again.wait().ok();
      EXPECT_TRUE(succeeded[i]) << again.status().error().message;
    }
  }
  for (const auto& [value, did] : succeeded) {
    const int times = history.times.count(value) == 0 ? 0 : history.times[value];
    EXPECT_LE(times, 1) << value;
    if (did) {
      EXPECT_EQ(times, 1) << value;
    }
  }
  EXPECT_EQ(server->counts().refused_connections, 0u);
}

INSTANTIATE_TEST_SUITE_P(Over, Cuts, testing::ValuesIn(test::socket_paths()),
                         [](const auto& test) { return test::path_name(test.param); });

// A chain of two: what the first has executed, the second knows, so a call that is repeated there
// after the first one's death is not executed again.
TEST(Replicas, AnswerRepeatedCallsAsTheFirstServerDid) {
  const test::Listener first_listener = test::listen_here();
  const test::Listener second_listener = test::listen_here();
  History history;
  auto first = test::make_server({}, first_listener.fd);
  auto second = test::make_server({.rank = 2}, second_listener.fd);
  std::mutex mutex;
  std::vector<Request> unanswered;
  first->add(kAdd, [&](Request request) {
    const auto value = value_of<uint64_t>(request.head());
    history.sum += value;
    EXPECT_TRUE(second
                    ->record(request.id(), request.floor(),
                             {.head_bytes = 8, .bytes = test::text_of(value_bytes(history.sum))})
                    .ok());
    const std::lock_guard lock(mutex);
    unanswered.push_back(std::move(request));  // it dies before it answers
  });
  serve_sum(*second, history);
  ASSERT_TRUE(first->start().ok() && second->start().ok());
  const auto client = test::make_client({});
  const Peer to_first = test::add_server(*client, first_listener.port);
  const Peer to_second = test::add_server(*client, second_listener.port, Path::kTcp, 2);
  Call call = to_first.call(kAdd, {.head = value_bytes(uint64_t{40})});
  ASSERT_TRUE(test::eventually([&] { return first->counts().calls == 1; }));
  Call later = to_second.call(kAdd, {.head = value_bytes(uint64_t{2})});
  ASSERT_TRUE(later.wait().ok());
  to_first.leave("the view has another primary");
  ASSERT_FALSE(call.wait().ok());
  {
    const std::lock_guard lock(mutex);
    unanswered.clear();
  }
  first.reset();
  const CallId id = call.id();
  Call again = to_second.call_again(std::move(call), kAdd, {.head = value_bytes(uint64_t{40})});
  ASSERT_TRUE(again.wait().ok()) << again.status().error().message;
  EXPECT_EQ(again.id(), id);
  EXPECT_EQ(value_of<uint64_t>(again.head()), 40u);
  EXPECT_EQ(history.sum, 42u);
  EXPECT_TRUE(history.times.count(40) == 0);  // the second has not executed it
}

TEST(Replicas, TakeOverWhatAServerExports) {
  const test::Listener first_listener = test::listen_here();
  const test::Listener second_listener = test::listen_here();
  History first_history;
  History second_history;
  const auto first = test::make_server({}, first_listener.fd);
  const auto second = test::make_server({.rank = 2}, second_listener.fd);
  serve_sum(*first, first_history);
  serve_sum(*second, second_history);
  ASSERT_TRUE(first->start().ok() && second->start().ok());
  const auto client = test::make_client({});
  Call call =
      test::add_server(*client, first_listener.port).call(kAdd, {.head = value_bytes(uint64_t{5})});
  ASSERT_TRUE(call.wait().ok());
  ASSERT_TRUE(second->import_calls(first->export_calls()).ok());
  EXPECT_EQ(second->import_calls("garbage").error().code, Code::kCorrupt);
  // The client's number has its outcome there, until it says that it is finished.
  EXPECT_EQ(second->counts().sessions, 1u);
  Call next = test::add_server(*client, second_listener.port, Path::kTcp, 2)
                  .call(kAdd, {.head = value_bytes(uint64_t{6})});
  ASSERT_TRUE(next.wait().ok());
  EXPECT_EQ(second_history.sum, 6u);
}

}  // namespace
}  // namespace lockstep::rpc
