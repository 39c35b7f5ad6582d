#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/http/bearer_token.h"
#include "common/http/server.h"

namespace lockstep::test {

// Feeds the streams of a server and tells what became of them. Thread-safe.
class Feed {
 public:
  void add(std::string bytes) {
    const std::lock_guard lock(mutex_);
    chunks_.push_back(std::move(bytes));
  }
  void end() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  http::Stream::Chunk next() {
    const std::lock_guard lock(mutex_);
    ++asked_;
    changed_.notify_all();
    if (chunks_.empty()) return {.is_last = ended_};
    std::string bytes = std::move(chunks_.front());
    chunks_.pop_front();
    return {.bytes = std::move(bytes), .is_last = ended_ && chunks_.empty()};
  }
  void count(int difference) {
    const std::lock_guard lock(mutex_);
    streams_ += difference;
    changed_.notify_all();
  }
  int asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  void wait_until_asked(int times) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return asked_ >= times; });
  }
  void wait_for_streams(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return streams_ == count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> chunks_;
  bool ended_ = false;
  int asked_ = 0;
  int streams_ = 0;
};

class FedStream : public http::Stream {
 public:
  explicit FedStream(Feed& feed) : feed_(feed) { feed_.count(1); }
  ~FedStream() override { feed_.count(-1); }
  Chunk next() override { return feed_.next(); }

 protected:
  Feed& feed_;
};

// A stream that always has more.
class EndlessStream final : public FedStream {
 public:
  using FedStream::FedStream;
  static constexpr size_t kChunkBytes = 256 * 1024;
  Chunk next() override {
    (void)feed_.next();
    return {.bytes = std::string(kChunkBytes, 'x')};
  }
};

class ThrowingStream final : public FedStream {
 public:
  using FedStream::FedStream;
  Chunk next() override { throw std::runtime_error("no next chunk"); }
};

// "/echo" returns the body, "/wait" answers when the test releases it, "/stream" streams the feed.
class TestHandler final : public http::Handler {
 public:
  http::Admission authorize(const http::Head& head) const override {
    if (head.target == "/refused") return {.refusal = http::Response{.status = 404, .body = "no"}};
    if (head.target == "/throws") throw std::runtime_error("no decision");
    return {.body_bytes_max = 1000, .authenticated = http::has_bearer_token(head, "secret")};
  }
  void handle(http::Request request, Respond respond) override {
    const std::string& target = request.head.target;
    if (target == "/echo") return respond({.body = std::move(request.body)});
    if (target == "/large") return respond({.body = std::string(kLargeBytes, 'x')});
    if (target == "/stream") return respond({.stream = std::make_shared<FedStream>(feed)});
    if (target == "/endless") return respond({.stream = std::make_shared<EndlessStream>(feed)});
    if (target == "/fails") return respond({.stream = std::make_shared<ThrowingStream>(feed)});
    if (target == "/handle-throws") throw std::runtime_error("no response");
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(respond));
    changed_.notify_all();
  }
  http::Response error(unsigned status, const std::string& message) const override {
    return {.status = status, .body = message};
  }

  Respond take_waiting() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !waiting_.empty(); });
    Respond respond = std::move(waiting_.back());
    waiting_.pop_back();
    return respond;
  }

  static constexpr size_t kLargeBytes = 16u << 20;
  Feed feed;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Respond> waiting_;
};

struct Served {
  explicit Served(const http::ServerOptions& options = {})
      : server(std::move(http::Server::start("127.0.0.1", 0, handler, options)).value()) {}
  int port() const { return server->port(); }

  TestHandler handler;
  std::unique_ptr<http::Server> server;
};

}  // namespace lockstep::test
