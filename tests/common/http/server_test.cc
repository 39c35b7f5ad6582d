#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "common/http/server.h"
#include "tests/common/http/served.h"
#include "tests/support/raw_http.h"

namespace lockstep::http {
namespace {

using std::chrono::milliseconds;
using test::http_call;
using test::HttpCall;
using test::HttpReply;
using test::RawConnection;
using test::Served;

TEST(Server, AnswersManyRequestsOnOneConnection) {
  Served served;
  RawConnection connection(served.port());
  for (const std::string body : {"one", "two", "three"}) {
    const HttpReply reply = connection.call({.method = "PUT", .target = "/echo", .body = body});
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body, body);
  }
}

TEST(Server, AnswersPipelinedRequestsInOrder) {
  Served served;
  RawConnection connection(served.port());
  const std::string head = "PUT /echo HTTP/1.1\r\nContent-Length: 1\r\n\r\n";
  connection.send(head + "a" + head + "b");
  EXPECT_EQ(connection.read_reply().body, "a");
  EXPECT_EQ(connection.read_reply().body, "b");
}

TEST(Server, AnswersAThousandPipelinedRequestsInOrder) {
  Served served;
  RawConnection connection(served.port());
  std::string requests;
  for (int i = 1000; i < 2000; ++i)
    requests += "PUT /echo HTTP/1.1\r\nContent-Length: 4\r\n\r\n" + std::to_string(i);
  std::jthread writer([&] { connection.send(requests); });
  for (int i = 1000; i < 2000; ++i) ASSERT_EQ(connection.read_reply().body, std::to_string(i));
}

TEST(Server, TellsAClientThatAsksToSendItsBody) {
  Served served;
  RawConnection connection(served.port());
  connection.send("PUT /echo HTTP/1.1\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(connection.read_reply().status, 100);
  connection.send("body");
  EXPECT_EQ(connection.read_reply().body, "body");
}

TEST(Server, RefusesATooLargeBodyInsteadOfAskingForIt) {
  Served served;
  RawConnection connection(served.port());
  connection.send("PUT /echo HTTP/1.1\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(connection.read_reply().status, 413);
  connection.wait_for_close();
}

TEST(Server, ClosesARefusedConnectionThatTheClientWantsClosed) {
  Served served;
  for (const char* head :
       {"GET /refused HTTP/1.0\r\n\r\n", "GET /refused HTTP/1.1\r\nConnection: close\r\n\r\n"}) {
    RawConnection connection(served.port());
    connection.send(head);
    EXPECT_NE(connection.read_all().find("Connection: close"), std::string::npos) << head;
  }
}

struct BadCase {
  const char* name;
  std::string bytes;
  int status;
};

TEST(Server, RefusesWhatIsNoRequestOrTooLargeAndGoesOnServing) {
  Served served;
  const std::string chunk = "3e8\r\n" + std::string(1000, 'x') + "\r\n";
  const BadCase cases[] = {
      {"garbage", "\x01\x02\x03 what\r\n\r\n", 400},
      {"TLS", std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 15), 400},
      {"two lengths", "PUT /echo HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
      {"bad length", "PUT /echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400},
      {"head", "GET /echo HTTP/1.1\r\nX: " + std::string(20'000, 'x') + "\r\n\r\n", 431},
      {"body", "PUT /echo HTTP/1.1\r\nContent-Length: 1001\r\n\r\n", 413},
      {"huge body", "PUT /echo HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413},
      {"chunks", "PUT /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk + chunk, 413},
      {"extension",
       "PUT /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;" + std::string(200'000, 'x'),
       431},
      {"trailer",
       "PUT /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: " +
           std::string(200'000, 'x'),
       431},
      {"refused", "PUT /refused HTTP/1.1\r\nContent-Length: 900\r\n\r\n", 404},
  };
  for (const BadCase& bad : cases) {
    RawConnection connection(served.port());
    connection.send(bad.bytes);
    EXPECT_EQ(connection.read_reply().status, bad.status) << bad.name;
    connection.wait_for_close();
    EXPECT_EQ(http_call(served.port(), {.method = "PUT", .target = "/echo", .body = "x"}).body,
              "x");
  }
}

TEST(Server, ClosesOnClientsThatAreTooSlowAtAnyPoint) {
  Served served({.header_limit = milliseconds(50),
                 .request_limit = milliseconds(50),
                 .stranger_idle_limit = milliseconds(50)});
  for (const char* bytes : {"", "GET /ec", "GET /echo HTTP/1.1\r\nA: b\r\n",
                            "PUT /echo HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc"}) {
    RawConnection connection(served.port());
    connection.send(bytes);
    // If the server does not close the connection, this hangs until the test's time limit.
    EXPECT_EQ(connection.read_reply().status, 0) << bytes;
  }
  EXPECT_EQ(http_call(served.port(), {.method = "PUT", .target = "/echo", .body = "x"}).body, "x");
}

TEST(Server, LimitsTheWholeRequestEvenIfItsPartsArriveInTime) {
  Served served({.request_limit = milliseconds(200)});
  RawConnection connection(served.port());
  connection.send("PUT /echo HTTP/1.1\r\nContent-Length: 1000\r\n\r\n");
  std::jthread slow([&] {
    while (connection.send("x")) std::this_thread::sleep_for(milliseconds(5));
  });
  EXPECT_EQ(connection.read_reply().status, 0);
}

TEST(Server, ClosesOnClientsThatDoNotReadTheirAnswer) {
  Served served({.connections_max = 1,
                 .when_full = WhenFull::kEvictStranger,
                 .send_buffer_bytes = 16 * 1024,
                 .write_limit = milliseconds(100)});
  RawConnection silent(served.port());
  silent.send("GET /large HTTP/1.1\r\nAuthorization: Bearer secret\r\n\r\n");
  // Once the silent client's place is free, another one is served.
  HttpReply reply;
  while (reply.status == 0)
    reply = http_call(served.port(), {.method = "PUT", .target = "/echo", .body = "x"});
  EXPECT_EQ(reply.body, "x");
}

TEST(Server, EvictsOnlyStrangersIfItsOptionsSaySo) {
  Served served({.connections_max = 1, .when_full = WhenFull::kEvictStranger});
  RawConnection stranger(served.port());
  EXPECT_EQ(stranger.call({.method = "PUT", .target = "/echo", .body = "1"}).body, "1");
  RawConnection first(served.port());
  EXPECT_EQ(first.call({.method = "PUT", .target = "/echo", .token = "secret", .body = "2"}).body,
            "2");
  stranger.wait_for_close();
  RawConnection second(served.port());
  second.wait_for_close();
  EXPECT_EQ(first.call({.method = "PUT", .target = "/echo", .token = "secret", .body = "3"}).body,
            "3");
}

TEST(Server, EndsOnlyTheConnectionWhoseHandlerThrows) {
  Served served;
  RawConnection other(served.port());
  EXPECT_EQ(other.call({.method = "PUT", .target = "/echo", .body = "1"}).body, "1");
  for (const char* target : {"/throws", "/handle-throws"})
    EXPECT_EQ(http_call(served.port(), {.target = target}).status, 0) << target;
  EXPECT_EQ(other.call({.method = "PUT", .target = "/echo", .body = "2"}).body, "2");
}

TEST(Server, SendsNoBodyForHead) {
  Served served;
  RawConnection connection(served.port());
  connection.send("HEAD /large HTTP/1.1\r\n\r\nPUT /echo HTTP/1.1\r\nContent-Length: 1\r\n\r\nx");
  EXPECT_TRUE(connection.read_until("\r\n\r\n"));
  EXPECT_EQ(connection.read_reply().body, "x");
}

TEST(Server, KeepsATrustedConnectionLongerThanAStrangers) {
  Served served({.stranger_idle_limit = milliseconds(50)});
  RawConnection trusted(served.port());
  RawConnection stranger(served.port());
  trusted.call({.method = "PUT", .target = "/echo", .token = "secret", .body = "1"});
  stranger.call({.method = "PUT", .target = "/echo", .body = "1"});
  stranger.wait_for_close();
  const HttpReply reply =
      trusted.call({.method = "PUT", .target = "/echo", .token = "secret", .body = "2"});
  EXPECT_EQ(reply.body, "2");
}

TEST(Server, LetsTheOneWithTheSecretInWhileStrangersHoldEveryConnection) {
  Served served({.connections_max = 4});
  RawConnection first(served.port());  // trusted, and idle
  EXPECT_EQ(first.call({.method = "PUT", .target = "/echo", .token = "secret", .body = "1"}).body,
            "1");
  std::vector<std::unique_ptr<RawConnection>> strangers;
  for (int i = 0; i < 20; ++i) {
    strangers.push_back(std::make_unique<RawConnection>(served.port()));
    strangers.back()->send("GET /echo HTTP/1.1\r\nSlow: ");
  }
  EXPECT_EQ(first.call({.method = "PUT", .target = "/echo", .token = "secret", .body = "2"}).body,
            "2");
  EXPECT_EQ(
      http_call(served.port(), {.method = "PUT", .target = "/echo", .token = "secret", .body = "3"})
          .body,
      "3");
  strangers.front()->wait_for_close();  // it was evicted
}

TEST(Server, WaitsForAnAnswerFromAnotherThread) {
  Served served;
  HttpReply reply;
  std::jthread client([&] { reply = http_call(served.port(), {.target = "/wait"}); });
  served.handler.take_waiting()({.status = 202, .body = "later"});
  client.join();
  EXPECT_EQ(reply.status, 202);
  EXPECT_EQ(reply.body, "later");
}

TEST(Server, SurvivesAnswersToClientsThatHaveLeftAndAfterItsOwnEnd) {
  Handler::Respond late;
  Served served;
  {
    RawConnection gone(served.port());
    gone.send("GET /wait HTTP/1.1\r\n\r\n");
    late = served.handler.take_waiting();
  }
  late({.body = "nobody"});
  EXPECT_EQ(http_call(served.port(), {.method = "PUT", .target = "/echo", .body = "x"}).body, "x");
  RawConnection waiting(served.port());
  waiting.send("GET /wait HTTP/1.1\r\n\r\n");
  late = served.handler.take_waiting();
  served.server.reset();
  late({.body = "too late"});
  waiting.wait_for_close();
}

TEST(Server, LetsAnswersOnTheirWayLeaveWhenItStops) {
  Served served;
  HttpReply reply;
  std::jthread client([&] { reply = http_call(served.port(), {.target = "/wait"}); });
  const Handler::Respond respond = served.handler.take_waiting();
  respond({.body = std::string(300'000, 'x')});
  served.server->stop(std::chrono::seconds(20));
  client.join();
  EXPECT_EQ(reply.body.size(), 300'000u);
}

TEST(Server, NamesAPortThatIsTakenAndAnAddressThatIsNotOurs) {
  Served served;
  test::TestHandler handler;
  const auto taken = Server::start("127.0.0.1", served.port(), handler);
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().code, Code::kConflict);
  EXPECT_EQ(taken.error().message,
            "[http] 127.0.0.1:" + std::to_string(served.port()) + " is already in use");
  EXPECT_EQ(Server::start("192.0.2.1", 0, handler).error().code, Code::kInvalid);
  EXPECT_EQ(Server::start("localhost", 0, handler).error().code, Code::kInvalid);
}

}  // namespace
}  // namespace lockstep::http
