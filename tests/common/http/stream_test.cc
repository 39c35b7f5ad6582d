// Streamed responses over real sockets, with misbehaving clients too.
#include <gtest/gtest.h>

#include <thread>

#include "tests/common/http/served.h"
#include "tests/support/raw_http.h"

namespace lockstep::http {
namespace {

using std::chrono::milliseconds;
using test::EndlessStream;
using test::http_call;
using test::RawConnection;
using test::Served;

constexpr char kGet[] = "GET /stream HTTP/1.1\r\n\r\n";

TEST(Stream, SendsChunksAsTheyAreAddedAndThenEnds) {
  Served served;
  test::Feed& feed = served.handler.feed;
  RawConnection connection(served.port());
  connection.send(kGet);
  EXPECT_TRUE(connection.read_until("Transfer-Encoding: chunked\r\n\r\n"));
  feed.wait_until_asked(1);
  std::jthread writer([&] {
    feed.add("one");
    served.server->wake_streams();
  });
  EXPECT_TRUE(connection.read_until("3\r\none\r\n"));
  feed.add("two");
  feed.end();
  served.server->wake_streams();
  EXPECT_EQ(connection.read_all(), "3\r\ntwo\r\n0\r\n\r\n");
  feed.wait_for_streams(0);
}

TEST(Stream, LosesNoChunkWhileManyThreadsWakeIt) {
  Served served;
  test::Feed& feed = served.handler.feed;
  RawConnection connection(served.port());
  connection.send(kGet);
  EXPECT_TRUE(connection.read_until("\r\n\r\n"));
  constexpr int kEach = 500;
  std::vector<std::jthread> writers(4);
  for (std::jthread& writer : writers) {
    writer = std::jthread([&] {
      for (int i = 0; i < kEach; ++i) {
        feed.add("x");
        served.server->wake_streams();
      }
    });
  }
  for (int i = 0; i < 4 * kEach; ++i) ASSERT_TRUE(connection.read_until("1\r\nx\r\n")) << i;
}

// Has a chunk at a certain time, without being woken.
class LateStream final : public Stream {
 public:
  Chunk next() override {
    if (std::chrono::steady_clock::now() >= at_) return {.bytes = "late", .is_last = true};
    return {.again = at_};
  }

 private:
  const TimePoint at_ = std::chrono::steady_clock::now() + milliseconds(20);
};

class LateHandler final : public Handler {
 public:
  Admission authorize(const Head&) const override { return {}; }
  void handle(Request, Respond respond) override {
    respond({.stream = std::make_shared<LateStream>()});
  }
  Response error(unsigned status, const std::string&) const override { return {.status = status}; }
};

TEST(Stream, IsAskedAgainAtItsTime) {
  LateHandler handler;
  const auto server = Server::start("127.0.0.1", 0, handler).value();
  RawConnection connection(server->port());
  connection.send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(connection.read_all().ends_with("\r\n\r\n4\r\nlate\r\n0\r\n\r\n"));
}

TEST(Stream, IsNotAskedForMoreThanASlowClientTakesAndIsCutOff) {
  Served served({.send_buffer_bytes = 64 * 1024, .write_limit = milliseconds(300)});
  RawConnection slow(served.port());
  slow.send("GET /endless HTTP/1.1\r\n\r\n");
  served.handler.feed.wait_until_asked(1);
  served.handler.feed.wait_for_streams(0);
  // The kernel buffers some chunks on both sides, and the server one.
  EXPECT_LE(served.handler.feed.asked() * EndlessStream::kChunkBytes, 32u << 20);
  EXPECT_EQ(http_call(served.port(), {.method = "PUT", .target = "/echo", .body = "x"}).body, "x");
}

TEST(Stream, GoesOnForAClientThatReads) {
  Served served({.write_limit = milliseconds(300)});
  RawConnection connection(served.port());
  connection.send("GET /endless HTTP/1.1\r\n\r\n");
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(connection.read_until("\r\n40000\r\n")) << i;
}

TEST(Stream, EndsWhenItsClientLeavesOrSends) {
  Served served;
  for (const bool sends : {true, false}) {
    RawConnection connection(served.port());
    connection.send(kGet);
    EXPECT_TRUE(connection.read_until("\r\n\r\n"));
    served.handler.feed.wait_for_streams(1);
    if (sends) {
      connection.send("GET /echo HTTP/1.1\r\n\r\n");
    } else {
      connection.end_writing();
    }
    EXPECT_EQ(connection.read_all(), "");
    served.handler.feed.wait_for_streams(0);
  }
}

// HTTP/1.0 has no chunks: the body ends with the connection. Source: RFC 9112, section 6.1.
TEST(Stream, IsNotChunkedForAnHttp10Client) {
  Served served;
  served.handler.feed.add("one ");
  served.handler.feed.add("two");
  served.handler.feed.end();
  RawConnection connection(served.port());
  connection.send("GET /stream HTTP/1.0\r\n\r\n");
  const std::string reply = connection.read_all();
  EXPECT_EQ(reply.find("chunked"), std::string::npos) << reply;
  EXPECT_TRUE(reply.ends_with("\r\n\r\none two")) << reply;
}

TEST(Stream, HasNoBodyForHead) {
  Served served;
  RawConnection connection(served.port());
  connection.send("HEAD /stream HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(connection.read_all().ends_with("Transfer-Encoding: chunked\r\n\r\n"));
  EXPECT_EQ(served.handler.feed.asked(), 0);
}

TEST(Stream, ThatThrowsEndsOnlyItsConnection) {
  Served served;
  RawConnection connection(served.port());
  connection.send("GET /fails HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(connection.read_all().ends_with("Transfer-Encoding: chunked\r\n\r\n"));
  EXPECT_EQ(http_call(served.port(), {.method = "PUT", .target = "/echo", .body = "x"}).body, "x");
}

TEST(Stream, IsCutWhenTheServerStops) {
  Served served;
  RawConnection waiting(served.port());
  waiting.send(kGet);
  EXPECT_TRUE(waiting.read_until("\r\n\r\n"));
  RawConnection writing(served.port());
  writing.send("GET /endless HTTP/1.1\r\n\r\n");
  served.handler.feed.wait_for_streams(2);
  // If it waited for the streams, this would take until the test's time limit.
  served.server->stop(std::chrono::hours(1));
  served.handler.feed.wait_for_streams(0);
  EXPECT_EQ(waiting.read_all(), "") << "not the last chunk: the body did not end";
  writing.wait_for_close();
  served.server->wake_streams();  // allowed, and without effect
}

}  // namespace
}  // namespace lockstep::http
