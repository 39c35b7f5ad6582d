// Small requests and replies that go out together.
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <thread>

#include "tests/agent/rpc/support.h"

namespace lockstep::rpc {
namespace {

using test::bytes_of;
using test::text_of;

const Method kEcho("echo", Repeats::kAllowed);
const Method kKeep("keep", Repeats::kNever);

// No ping sends what a burst has kept.
Limits limits_without_pings() {
  Limits limits;
  limits.ping_every = std::chrono::minutes(1);
  limits.silence_limit = std::chrono::minutes(2);
  return limits;
}

void wait_a_while() {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

class Bursts : public testing::Test {
 protected:
  Bursts()
      : server_(test::make_server({.limits = limits_without_pings()}, listener_.fd)),
        client_(test::make_client({.limits = limits_without_pings()})),
        peer_(test::add_server(*client_, listener_.port)) {
    server_->add(kEcho, [this](Request request) {
      ++served_;
      const std::string said = text_of(request.head());
      request.answer({.head = bytes_of(said)});
    });
    server_->add(kKeep, [this](Request request) {
      const std::lock_guard lock(mutex_);
      kept_.push_back(std::move(request));
    });
    EXPECT_TRUE(server_->start().ok());
    EXPECT_TRUE(call().wait().ok()) << "the connection";
    served_ = 0;
  }

  Call call() { return peer_.call(kEcho, {.head = bytes_of("hello")}); }
  Call keep() { return peer_.call(kKeep, {.head = bytes_of("keep")}); }
  bool has_kept(size_t count) {
    return test::eventually([&] {
      const std::lock_guard lock(mutex_);
      return kept_.size() == count;
    });
  }
  void answer_one() {
    const std::lock_guard lock(mutex_);
    kept_.front().answer({.head = bytes_of("later")});
    kept_.pop_front();
  }

  test::Listener listener_ = test::listen_here();
  std::atomic<int> served_{0};
  std::mutex mutex_;
  std::unique_ptr<Server> server_;
  std::deque<Request> kept_;  // goes before the server
  std::unique_ptr<Client> client_;
  Peer peer_;
};

TEST_F(Bursts, OfRequestsGoOutAtTheEndOfTheLastOne) {
  std::vector<Call> calls;
  auto outer = std::make_unique<RequestBurst>(*client_);
  {
    const RequestBurst inner(*client_);
    for (int i = 0; i < 20; ++i) calls.push_back(call());
  }
  wait_a_while();
  EXPECT_EQ(served_, 0);
  outer.reset();
  for (Call& each : calls) {
    ASSERT_TRUE(each.wait().ok());
    EXPECT_EQ(text_of(each.head()), "hello");
  }
  EXPECT_EQ(served_, 20);
  ASSERT_TRUE(call().wait().ok()) << "without a burst it goes at once";
}

TEST_F(Bursts, OfRequestsDoNotKeepLargeOnes) {
  const std::vector<std::byte> body(kBurstBytes);
  const RequestBurst burst(*client_);
  Call small = call();
  const Bytes parts[] = {body};
  Call large = peer_.call(kEcho, {.head = bytes_of("large"), .body = parts});
  EXPECT_TRUE(large.wait().ok());
  EXPECT_TRUE(small.wait().ok()) << "it went with the large one";
}

TEST_F(Bursts, OfRequestsCanBeCancelled) {
  std::optional<RequestBurst> burst(*client_);
  Call cancelled = call();
  Call other = call();
  cancelled.cancel();
  EXPECT_EQ(cancelled.wait().error().code, Code::kUnavailable);
  burst.reset();
  EXPECT_TRUE(other.wait().ok());
}

TEST_F(Bursts, OfRepliesGoOutAtTheirEndOrAfterAWhile) {
  std::vector<Call> calls;
  for (int i = 0; i < 3; ++i) calls.push_back(keep());
  ASSERT_TRUE(has_kept(3));
  std::optional<ReplyBurst> burst(*server_);
  answer_one();
  wait_a_while();
  EXPECT_FALSE(calls[0].is_done());
  answer_one();
  EXPECT_TRUE(calls[0].wait().ok()) << "the first one was kept for too long";
  EXPECT_TRUE(calls[1].wait().ok());
  answer_one();
  wait_a_while();
  EXPECT_FALSE(calls[2].is_done());
  burst.reset();
  EXPECT_TRUE(calls[2].wait().ok());
  EXPECT_EQ(text_of(calls[2].head()), "later");
}

TEST_F(Bursts, OfRepliesKeepNoneForLongerThanAnyOther) {
  auto other_client = test::make_client({.rank = 1, .limits = limits_without_pings()});
  Peer other = test::add_server(*other_client, listener_.port);
  Call first = keep();
  ASSERT_TRUE(has_kept(1));
  Call second = other.call(kKeep, {.head = bytes_of("keep")});
  ASSERT_TRUE(has_kept(2));
  const ReplyBurst burst(*server_);
  answer_one();
  wait_a_while();
  EXPECT_FALSE(first.is_done());
  answer_one();
  EXPECT_TRUE(second.wait().ok());
  EXPECT_TRUE(first.wait().ok()) << "it goes with that of the other client";
}

TEST_F(Bursts, OfRequestsKeepEmptyOnesNoLonger) {
  std::optional<RequestBurst> burst(*client_);
  Call empty = peer_.call(kEcho, {});
  burst.reset();
  EXPECT_TRUE(empty.wait().ok());
}

TEST_F(Bursts, OfRepliesMayOutliveTheirClients) {
  std::optional<ReplyBurst> burst(*server_);
  Call kept = keep();
  ASSERT_TRUE(has_kept(1));
  answer_one();
  client_.reset();
  ASSERT_TRUE(test::eventually([&] { return server_->counts().connections == 0; }));
  burst.reset();
  EXPECT_FALSE(kept.status().ok());
}

}  // namespace
}  // namespace lockstep::rpc
