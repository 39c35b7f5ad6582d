// Deadlines, cancellation, queues and objects.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "tests/agent/rpc/support.h"

namespace lockstep::rpc {
namespace {

using test::bytes_of;
using test::Path;

const Method kWait("wait", Repeats::kAllowed);
const Method kOnce("once", Repeats::kNever);
const Method kOpen("open", Repeats::kNever);
const Method kUse("use", Repeats::kAllowed);

// A server whose requests wait until the test lets them go.
class Held : public testing::Test {
 protected:
  explicit Held(Limits limits = test::quick_limits())
      : server_(test::make_server({.limits = limits}, listener_.fd)),
        client_(test::make_client({.limits = limits})),
        peer_(test::add_server(*client_, listener_.port)) {
    for (const Method* const method : {&kWait, &kOnce}) {
      server_->add(*method, [this](Request request) {
        const std::lock_guard lock(mutex_);
        requests_.push_back(std::move(request));
      });
    }
    EXPECT_TRUE(server_->start().ok());
  }
  ~Held() override {
    client_.reset();
    release();
  }
  size_t held() {
    const std::lock_guard lock(mutex_);
    return requests_.size();
  }
  void release() {
    std::vector<Request> requests;
    {
      const std::lock_guard lock(mutex_);
      requests.swap(requests_);
    }
    for (Request& request : requests) request.answer({.head = bytes_of("done")});
  }

  test::Listener listener_ = test::listen_here();
  std::mutex mutex_;
  std::vector<Request> requests_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Client> client_;
  Peer peer_;
};

TEST_F(Held, EndAtTheDeadline) {
  Call call = peer_.call(kWait, {.timeout = std::chrono::milliseconds(30)});
  ASSERT_FALSE(call.wait().ok());
  EXPECT_EQ(call.status().error().code, Code::kTimeout);
  EXPECT_NE(call.status().error().message.find("wait: no reply by the deadline"),
            std::string::npos);
  // The server learns of it, and may have learned of the deadline before.
  ASSERT_TRUE(test::eventually([&] { return held() == 1; }));
  EXPECT_TRUE(requests_[0].deadline().has_value());
  EXPECT_TRUE(test::eventually([&] { return !requests_[0].is_wanted(); }));
}

TEST_F(Held, EndAtTheDeadlineWithoutAConnection) {
  const test::Listener nobody = test::listen_here();
  ::close(nobody.fd);
  const Peer gone = test::add_server(*client_, nobody.port, Path::kTcp, 2);
  Call call = gone.call(kWait, {.timeout = std::chrono::milliseconds(30)});
  EXPECT_EQ(call.wait().error().code, Code::kTimeout);
}

TEST_F(Held, HaveNoDeadlineUnlessTheyAreGivenOne) {
  Call call = peer_.call(kWait, {});
  ASSERT_TRUE(test::eventually([&] { return held() == 1; }));
  EXPECT_FALSE(requests_[0].deadline().has_value());
  EXPECT_TRUE(requests_[0].is_wanted());
  release();
  EXPECT_TRUE(call.wait().ok());
}

TEST_F(Held, AreCancelled) {
  Call call = peer_.call(kWait, {});
  ASSERT_TRUE(test::eventually([&] { return held() == 1; }));
  call.cancel();
  EXPECT_EQ(call.wait().error().code, Code::kUnavailable);
  EXPECT_TRUE(test::eventually([&] { return !requests_[0].is_wanted(); }));
  release();
  EXPECT_TRUE(test::eventually([&] { return server_->counts().calls == 0; }));
  Call next = peer_.call(kWait, {});
  ASSERT_TRUE(test::eventually([&] { return held() == 1; }));
  release();
  EXPECT_TRUE(next.wait().ok());
}

TEST_F(Held, AreCancelledByTheEndOfTheirHandle) {
  {
    std::vector<std::byte> room(10);
    const std::span<std::byte> into[] = {room};
    const Call call = peer_.call(kWait, {.into = into});
    ASSERT_TRUE(test::eventually([&] { return held() == 1; }));
  }
  EXPECT_TRUE(test::eventually([&] { return !requests_[0].is_wanted(); }));
}

// Calls with large bodies that are cancelled at any moment leave a connection that works.
TEST_F(Held, AreCancelledAtAnyMoment) {
  std::vector<std::byte> memory(4u << 20);
  for (int i = 0; i < 60; ++i) {
    const Bytes body[] = {memory};
    Call call = peer_.call(i % 2 == 0 ? kOnce : kWait, {.body = body});
    std::this_thread::sleep_for(std::chrono::microseconds(i * 40));
    call.cancel();
    ASSERT_EQ(call.wait().error().code, Code::kUnavailable);
    release();
  }
  EXPECT_TRUE(test::eventually([&] {
    release();
    return server_->counts().calls == 0;
  }));
  Call next = peer_.call(kWait, {});
  ASSERT_TRUE(test::eventually([&] { return held() == 1; }));
  release();
  EXPECT_TRUE(next.wait().ok());
  EXPECT_EQ(server_->counts().refused_connections, 0u);
}

TEST_F(Held, FailWhenTheirServerIsLeft) {
  Call sent = peer_.call(kWait, {});
  ASSERT_TRUE(test::eventually([&] { return held() == 1; }));
  peer_.leave("the view has another primary");
  ASSERT_FALSE(sent.wait().ok());
  EXPECT_NE(sent.status().error().message.find("wait: the view has another primary"),
            std::string::npos);
  EXPECT_TRUE(test::eventually([&] { return server_->counts().sessions == 0; }));
}

TEST_F(Held, FailWhenTheirClientEnds) {
  Call call = peer_.call(kWait, {});
  ASSERT_TRUE(test::eventually([&] { return held() == 1; }));
  client_.reset();
  ASSERT_TRUE(call.is_done());
  EXPECT_NE(call.status().error().message.find("the client ends"), std::string::npos);
  EXPECT_EQ(peer_.call(kWait, {}).wait().error().code, Code::kUnavailable);
}

Limits narrow_limits() {
  Limits limits = test::quick_limits();
  limits.calls_max = 4;
  limits.window_bytes = 1 << 20;
  limits.queued_calls_max = 20;
  return limits;
}

class Windows : public Held {
 protected:
  Windows() : Held(narrow_limits()) {}
};

TEST_F(Windows, BoundTheCallsAtTheServer) {
  std::vector<Call> calls;
  for (int i = 0; i < 12; ++i) calls.push_back(peer_.call(kWait, {}));
  ASSERT_TRUE(test::eventually([&] { return held() == 4; }));
  for (int released = 0; released < 12; released += 4) {
    ASSERT_TRUE(test::eventually([&] { return held() == 4; }));
    EXPECT_LE(server_->counts().calls, 4u);
    release();
  }
  for (Call& call : calls) EXPECT_TRUE(call.wait().ok());
}

TEST_F(Windows, BoundTheBytesAtTheServer) {
  const std::vector<std::byte> memory(600'000);
  const Bytes body[] = {memory};
  std::vector<Call> calls;
  for (int i = 0; i < 5; ++i) calls.push_back(peer_.call(kWait, {.body = body}));
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(test::eventually([&] { return held() == 1; })) << i;
    release();
  }
  for (Call& call : calls) EXPECT_TRUE(call.wait().ok());
}

TEST_F(Windows, LetALargeCallGoAlone) {
  const std::vector<std::byte> memory(5u << 20);
  const Bytes body[] = {memory};
  Call small = peer_.call(kWait, {});
  ASSERT_TRUE(test::eventually([&] { return held() == 1; }));
  Call large = peer_.call(kWait, {.body = body});
  release();
  ASSERT_TRUE(test::eventually([&] { return held() == 1; }));
  release();
  EXPECT_TRUE(small.wait().ok() && large.wait().ok());
}

TEST_F(Windows, RefuseCallsBeyondTheQueue) {
  std::vector<Call> calls;
  calls.push_back(peer_.call(kWait, {}));
  ASSERT_TRUE(test::eventually([&] { return held() == 1; }));
  for (int i = 0; i < 23; ++i) calls.push_back(peer_.call(kWait, {}));
  Call refused = peer_.call(kWait, {});
  EXPECT_TRUE(refused.is_done());
  EXPECT_NE(refused.wait().error().message.find("20 calls are waiting already"), std::string::npos);
  calls.resize(5);  // cancels the others
  release();
  EXPECT_TRUE(test::eventually([&] {
    release();
    return calls[4].is_done();
  }));
  EXPECT_TRUE(calls[4].wait().ok());
}

// Counts how many there are.
class Counted final : public Object {
 public:
  explicit Counted(std::atomic<int>& alive) : alive_(alive) { ++alive_; }
  ~Counted() override { --alive_; }

 private:
  std::atomic<int>& alive_;
};

class Objects : public testing::Test {
 protected:
  Objects() {
    Limits limits = test::quick_limits();
    limits.objects_max = 3;
    limits.lease = std::chrono::milliseconds(200);
    server_ = test::make_server({.limits = limits}, listener_.fd);
    server_->add(kOpen, [this](Request request) {
      request.answer({.object = std::make_shared<Counted>(alive_)});
    });
    server_->add(kUse, [](Request request) {
      if (request.object() == nullptr) return request.fail(Code::kInvalid, "no object");
      request.answer({.head = bytes_of("used")});
    });
    EXPECT_TRUE(server_->start().ok());
    client_ = test::make_client({.limits = limits});
    peer_ = test::add_server(*client_, listener_.port);
  }
  uint64_t open() {
    Call call = peer_.call(kOpen, {});
    EXPECT_TRUE(call.wait().ok());
    return call.object();
  }

  std::atomic<int> alive_{0};
  test::Listener listener_ = test::listen_here();
  std::unique_ptr<Server> server_;
  std::unique_ptr<Client> client_;
  Peer peer_;
};

TEST_F(Objects, LiveUntilTheyAreReleased) {
  const uint64_t first = open();
  const uint64_t second = open();
  EXPECT_NE(first, 0u);
  EXPECT_NE(first, second);
  EXPECT_TRUE(peer_.call(kUse, {.object = first}).wait().ok());
  EXPECT_EQ(alive_, 2);
  peer_.release(first);
  EXPECT_TRUE(test::eventually([&] { return alive_ == 1; }));
  EXPECT_EQ(peer_.call(kUse, {.object = first}).wait().error().code, Code::kNotFound);
  EXPECT_TRUE(peer_.call(kUse, {.object = second}).wait().ok());
  EXPECT_EQ(peer_.call(kUse, {}).wait().error().code, Code::kInvalid);
}

TEST_F(Objects, BelongToOneClient) {
  const uint64_t mine = open();
  const auto other = test::make_client({.rank = 1});
  const Peer peer = test::add_server(*other, listener_.port);
  EXPECT_EQ(peer.call(kUse, {.object = mine}).wait().error().code, Code::kNotFound);
}

TEST_F(Objects, AreLimitedInNumber) {
  for (int i = 0; i < 3; ++i) open();
  Call call = peer_.call(kOpen, {});
  EXPECT_EQ(call.wait().error().code, Code::kUnavailable);
  EXPECT_TRUE(test::eventually([&] { return alive_ == 3; }));
}

TEST_F(Objects, EndWithTheSession) {
  open();
  client_.reset();
  EXPECT_TRUE(test::eventually([&] { return alive_ == 0 && server_->counts().sessions == 0; }));
}

}  // namespace
}  // namespace lockstep::rpc
