// Malicious or broken servers: their replies end an exchange, but neither crash the process nor
// exhaust its memory.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <optional>
#include <thread>

#include "controller/kube/http.h"
#include "controller/kube/plain_http.h"
#include "tests/controller/kube/client_loop.h"
#include "tests/controller/kube/scripted_server.h"

namespace lockstep::kube {
namespace {

using Peer = ScriptedServer::Peer;
using Request = ScriptedServer::Request;
using std::chrono::milliseconds;

constexpr char kChunks[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

template <class Client>
Result<HttpReply> get(ClientLoop& loop, Client& client, HttpRequest request = {}) {
  std::optional<Result<HttpReply>> reply;
  client.send(std::move(request), [&](Result<HttpReply> answer) { reply = std::move(answer); });
  loop.run_until([&] { return reply.has_value(); });
  return *reply;
}

// A test with a scripted server and a client of its own.
class HostileServer : public testing::Test {
 protected:
  void serve(ScriptedServer::Handler handler) {
    server_.emplace(std::move(handler));
    client_.emplace(address(), loop_.mailbox, loop_.timers, network_);
  }
  void serve_text(const std::string& text) {
    serve([text](const Request&, const Peer& peer) {
      peer.write(text);
      peer.wait_for_close();
    });
  }
  PlainHttpClient::Server address() const {
    return {"127.0.0.1", static_cast<uint16_t>(server_->port())};
  }
  Result<HttpReply> ask(HttpRequest request = {}) { return get(loop_, *client_, request); }

  ClientLoop loop_;
  std::shared_ptr<PlainNetwork> network_ = start_plain_network();
  std::optional<ScriptedServer> server_;
  std::optional<PlainHttpClient> client_;
};

TEST_F(HostileServer, ThatIsTrustedEndsNoMoreThanItsExchangeByAChunkOfNoSize) {
  ClientLoop loop;
  std::string size;
  ScriptedServer server([&](const Request&, const Peer& peer) {
    peer.begin_chunks();
    peer.chunk("hello");
    peer.write(size + "\r\n\r\n0\r\n\r\n");
    peer.wait_for_close();
  });
  HttpClient client({.url = server.url()}, loop.mailbox, loop.timers);
  for (const char* said : {"-2", "-1"}) {
    SCOPED_TRACE(said);
    size = said;
    EXPECT_FALSE(get(loop, client).ok());
    std::optional<Result<HttpReply>> end;
    const auto stream =
        client.stream({}, {.on_lines = [](const std::vector<std::string>&) {},
                           .on_end = [&](Result<HttpReply> reply) { end = std::move(reply); }});
    loop.run_until([&] { return end.has_value(); });
    EXPECT_FALSE(end->ok());
  }
}

TEST_F(HostileServer, GetsAnErrorForWhatIsNoAnswer) {
  const std::string chunked = std::string(kChunks) + "5\r\nhello\r\n";
  const std::string ok = "HTTP/1.1 200 OK\r\n";
  std::string many_interim;
  for (int i = 0; i < 100; ++i) many_interim += "HTTP/1.1 103 Early Hints\r\n\r\n";
  const std::string texts[] = {
      chunked + "-2\r\n\r\n0\r\n\r\n",
      chunked + "-1\r\n\r\n0\r\n\r\n",
      chunked + "fffffffffffffffff\r\nx",
      chunked + "7fffffffffffffff\r\nx",
      ok + "Content-Length: -5\r\n\r\nhello",
      ok + "Content-Length: 18446744073709551615\r\n\r\nhello",
      ok + "Content-Length: 99999999999999999999\r\n\r\nhello",
      ok + "Content-Length: abc\r\n\r\nhello",
      ok + "Content-Length: 2\r\nContent-Length: 5\r\n\r\nhello",
      ok + "NoColonHere\r\n:empty\r\nContent-Length: 2\r\n\r\n{}",
      "HTTP/1.1 99999999999999 OK\r\n\r\n",
      "HTTP/1.1 101 Switching Protocols\r\n\r\n",
      std::string("\x00\xff\xfe garbage\r\n\r\n\r\n", 18),
      many_interim + ok + "Content-Length: 2\r\n\r\n{}",
      ok + "Content-Length: 10\r\n\r\nhalf",
  };
  for (const std::string& text : texts) {
    SCOPED_TRACE(text.substr(0, 200));
    serve_text(text);
    EXPECT_FALSE(ask({.deadline = milliseconds(300)}).ok());
  }
}

TEST_F(HostileServer, CanNotFillTheMemory) {
  constexpr size_t kFlood = 100u << 20;
  const std::string beginnings[] = {
      "HTTP/1.1 200 OK\r\nX: ",
      std::string(kChunks) + "6400000\r\n",
      std::string(kChunks) + "1;extension=",
      std::string(kChunks) + "0\r\nTrailer: ",
      "HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\n",
      "HTTP/1.1 200 OK\r\n\r\n",
      "HTTP/1.1 103 ",
  };
  const std::string piece(1u << 20, 'a');
  for (const std::string& beginning : beginnings) {
    SCOPED_TRACE(beginning);
    std::atomic<size_t> sent{0};
    serve([&](const Request&, const Peer& peer) {
      peer.write(beginning);
      while (sent < kFlood && peer.write(piece)) sent += piece.size();
    });
    const size_t before = resident_bytes();
    const Result<HttpReply> reply = ask({.reply_bytes_max = 100'000});
    EXPECT_FALSE(reply.ok());
    EXPECT_EQ(reply.error().code, Code::kInvalid) << reply.error().message;
    EXPECT_LT(resident_bytes(), before + (16u << 20));
    server_.reset();
    EXPECT_LT(sent, kFlood);
  }
}

TEST_F(HostileServer, CanNotSayLittleWithoutEnd) {
  std::string tiny;
  for (int i = 0; i < 1000; ++i) tiny += "1;" + std::string(1000, 'x') + "\r\ny\r\n";
  std::atomic<size_t> sent{0};
  serve([&](const Request&, const Peer& peer) {
    peer.write(kChunks);
    while (sent < 1000 && peer.write(tiny)) ++sent;
  });
  EXPECT_EQ(ask({.reply_bytes_max = 1'000'000}).error().code, Code::kInvalid);
  server_.reset();
  EXPECT_LT(sent, 1000u);
}

TEST_F(HostileServer, ThatFallsSilentIsLeftAtTheDeadline) {
  for (const char* said : {"", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe"}) {
    SCOPED_TRACE(said);
    serve_text(said);
    const Result<HttpReply> reply = ask({.deadline = milliseconds(100)});
    ASSERT_FALSE(reply.ok());
    EXPECT_EQ(reply.error().code, Code::kTimeout) << reply.error().message;
  }
}

TEST_F(HostileServer, ThatLeavesWithinItsAnswerIsUnavailable) {
  for (const char* said : {"", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"}) {
    SCOPED_TRACE(said);
    serve([said](const Request&, const Peer& peer) {
      peer.write(said);
      peer.close();
    });
    const Result<HttpReply> reply = ask();
    ASSERT_FALSE(reply.ok());
    EXPECT_EQ(reply.error().code, Code::kUnavailable) << reply.error().message;
  }
  const PlainHttpClient::Server nobody = address();
  server_.reset();
  PlainHttpClient client(nobody, loop_.mailbox, loop_.timers, network_);
  EXPECT_EQ(get(loop_, client).error().code, Code::kUnavailable);
  PlainHttpClient nowhere({"no address", 1}, loop_.mailbox, loop_.timers, network_);
  EXPECT_EQ(get(loop_, nowhere).error().code, Code::kInvalid);
}

TEST_F(HostileServer, ThatEndsItsChunksByteByByteIsHeardToTheEnd) {
  for (const std::string body :
       {"0\r\n\r\n", "0\r\nA: b\r\n\r\n", "5\r\nhello\r\n0\r\nA: b\r\n\r\n"}) {
    serve([body](const Request&, const Peer& peer) {
      peer.write(kChunks);
      for (const char byte : body) {
        std::this_thread::sleep_for(milliseconds(2));  // so that each byte arrives alone
        peer.write({byte});
      }
      peer.wait_for_close();
    });
    const Result<HttpReply> reply = ask();
    ASSERT_TRUE(reply.ok()) << body << reply.error().message;
    EXPECT_EQ(reply->body, body[0] == '5' ? "hello" : "");
  }
}

TEST_F(HostileServer, ThatContinuesUnaskedIsHeardToTheEnd) {
  serve_text(
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
      "HTTP/1.1 503 Said\r\nContent-Length: 5\r\nRetry-After: 3\r\n\r\nhello");
  const Result<HttpReply> reply = ask();
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_EQ(reply->status, 503);
  EXPECT_EQ(reply->retry_after, "3");
  EXPECT_EQ(reply->body, "hello");
}

TEST_F(HostileServer, CanNotAnswerBeforeItIsAsked) {
  const std::string evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
  const std::string good = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood";
  serve([&](const Request&, const Peer& peer) { peer.write(good + evil); });
  for (int i = 0; i < 5; ++i) EXPECT_EQ(ask()->body, "good");
  std::atomic<bool> is_answered{false}, is_said{false};
  serve([&](const Request&, const Peer& peer) {
    peer.write(good);
    is_answered.wait(false);
    peer.write(evil);
    is_said = true;
    is_said.notify_all();
  });
  EXPECT_EQ(ask()->body, "good");
  is_answered = true;
  is_answered.notify_all();
  is_said.wait(false);
  EXPECT_EQ(ask()->body, "good");
  server_.reset();  // before the variables that its threads use
}

TEST_F(HostileServer, IsSentTwiceOnlyWhatCanDoNothingTwice) {
  serve([](const Request&, const Peer& peer) {
    thread_local bool is_second = false;
    if (std::exchange(is_second, true)) {
      peer.close();
    } else {
      peer.reply(200, "{}");
    }
  });
  EXPECT_TRUE(ask().ok());
  EXPECT_TRUE(ask().ok()) << "over a connection of its own";
  EXPECT_EQ(server_->requests(), 3);
  EXPECT_EQ(ask({.method = "PUT", .body = "{}"}).error().code, Code::kUnavailable);
  EXPECT_EQ(server_->requests(), 4);
}

TEST_F(HostileServer, ThatClosesWithoutAWordIsAskedOverANewConnection) {
  serve([](const Request&, const Peer& peer) {
    peer.reply(200, "{}");
    peer.close();
  });
  for (int i = 0; i < 20; ++i) {
    const Result<HttpReply> reply = ask();
    EXPECT_TRUE(reply.ok()) << reply.error().message;
  }
}

TEST_F(HostileServer, IsAskedOverOneConnectionWhileItIsKept) {
  std::atomic<int> connections{0};
  serve([&](const Request&, const Peer& peer) {
    thread_local bool is_known = false;
    if (!std::exchange(is_known, true)) ++connections;
    peer.reply(200, "{}");
  });
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(ask({.method = i % 2 == 0 ? "GET" : "PUT"}).ok());
  EXPECT_EQ(connections, 1);
}

TEST_F(HostileServer, NeverSeesAHeadThatOthersCouldHaveWritten) {
  serve([](const Request&, const Peer& peer) { peer.reply(200, "{}"); });
  EXPECT_EQ(ask({.path_and_query = "/x\r\nHost: y"}).error().code, Code::kInvalid);
  EXPECT_EQ(ask({.authorization = "Bearer a\r\nX: y"}).error().code, Code::kInvalid);
  EXPECT_EQ(server_->requests(), 0);
}

// A late answer may arrive when its loop is gone. The loops are kept alive here only to show
// whether one arrives.
TEST_F(HostileServer, LeavesTheLoopAloneOnceTheClientIsGone) {
  std::atomic<int> left{0};
  serve([&](const Request&, const Peer& peer) {
    peer.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    peer.wait_for_close();
    ++left;
    left.notify_all();
  });
  constexpr int kRounds = 20;
  std::vector<std::unique_ptr<ClientLoop>> loops;
  int answers = 0;
  for (int round = 0; round < kRounds; ++round) {
    ClientLoop& loop = *loops.emplace_back(std::make_unique<ClientLoop>());
    PlainHttpClient client(address(), loop.mailbox, loop.timers, network_);
    client.send({}, [&](const Result<HttpReply>&) { ++answers; });
    if (round % 2 == 0) {
      while (server_->requests() <= round / 2) std::this_thread::yield();
    }
  }
  for (const auto& loop : loops) {
    EXPECT_EQ(loop->mailbox.run(), 0u);
    EXPECT_FALSE(loop->timers.next().has_value());
  }
  EXPECT_EQ(answers, 0);
  for (int seen = left; seen < server_->requests(); seen = left) left.wait(seen);
  server_.reset();  // before the variables that its threads use
}

}  // namespace
}  // namespace lockstep::kube
