// The server over TLS, with misbehaving clients.
#include "common/http/tls.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

#include "local/http/certificate.h"
#include "tests/common/http/served.h"
#include "tests/support/raw_http.h"

namespace lockstep::http {
namespace {

using std::chrono::milliseconds;
using test::RawConnection;
using test::Served;

ServerOptions with_tls(ServerOptions options = {}) {
  options.tls = make_tls_context(local::make_local_certificate().value()).value();
  return options;
}

// A blocking TLS connection that verifies nothing.
class TlsConnection {
 public:
  explicit TlsConnection(int port) : context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free) {
    signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to connections that the server has closed
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ssl_ = {SSL_new(context_.get()), SSL_free};
    SSL_set_fd(ssl_.get(), fd_);
  }
  ~TlsConnection() {
    ssl_.reset();
    close(fd_);
  }

  bool handshake() { return SSL_connect(ssl_.get()) == 1; }
  bool send(const std::string& bytes) {
    return SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())) > 0;
  }
  // Returns false if the connection ends first.
  bool read_until(const std::string& wanted) {
    while (received_.find(wanted) == std::string::npos) {
      if (!read_some()) return false;
    }
    received_.erase(0, received_.find(wanted) + wanted.size());
    return true;
  }
  std::string read_all() {
    while (read_some()) {
    }
    return std::move(received_);
  }
  // Returns whether the server said that the connection ends, with close_notify.
  bool has_ended_orderly() { return (SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN) != 0; }
  void say_goodbye() { SSL_shutdown(ssl_.get()); }
  // Sends bytes outside of TLS.
  void send_raw(const std::string& bytes) {
    EXPECT_EQ(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void end_writing() { shutdown(fd_, SHUT_WR); }

 private:
  bool read_some() {
    char block[16 * 1024];
    const int bytes = SSL_read(ssl_.get(), block, sizeof block);
    if (bytes > 0) received_.append(block, static_cast<size_t>(bytes));
    return bytes > 0;
  }

  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_;
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_{nullptr, SSL_free};
  int fd_ = -1;
  std::string received_;
};

std::string put(const std::string& body, const std::string& more = "") {
  return "PUT /echo HTTP/1.1\r\n" + more + "Content-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

// Checks that the server serves, also when misbehaving clients hold their connections.
void expect_that_it_serves(const Served& served) {
  TlsConnection connection(served.port());
  ASSERT_TRUE(connection.handshake());
  connection.send(put("serves"));
  EXPECT_TRUE(connection.read_until("\r\n\r\nserves"));
}

TEST(Tls, AnswersManyRequestsOnOneConnectionAndEndsOrderly) {
  Served served(with_tls());
  TlsConnection connection(served.port());
  ASSERT_TRUE(connection.handshake());
  connection.send(put("one"));
  EXPECT_TRUE(connection.read_until("\r\n\r\none"));
  connection.send(put("two") + put("three"));
  EXPECT_TRUE(connection.read_until("\r\n\r\ntwo"));
  EXPECT_TRUE(connection.read_until("\r\n\r\nthree"));
  connection.send(put("last", "Connection: close\r\n"));
  EXPECT_TRUE(connection.read_all().ends_with("\r\n\r\nlast"));
  EXPECT_TRUE(connection.has_ended_orderly());
}

TEST(Tls, SendsLargeAnswersWhole) {
  Served served(with_tls());
  TlsConnection connection(served.port());
  ASSERT_TRUE(connection.handshake());
  connection.send("GET /large HTTP/1.1\r\nConnection: close\r\n\r\n");
  const std::string answer = connection.read_all();
  EXPECT_EQ(answer.size() - answer.find("\r\n\r\n") - 4, test::TestHandler::kLargeBytes);
}

TEST(Tls, AnswersTheGoodbyeOfItsClient) {
  Served served(with_tls());
  TlsConnection connection(served.port());
  ASSERT_TRUE(connection.handshake());
  connection.send(put("one"));
  EXPECT_TRUE(connection.read_until("\r\n\r\none"));
  connection.say_goodbye();
  connection.read_all();
  EXPECT_TRUE(connection.has_ended_orderly());
}

TEST(Tls, ClosesOnClientsThatAreTooSlowAtAnyPoint) {
  Served served(with_tls({.header_limit = milliseconds(200),
                          .request_limit = milliseconds(200),
                          .stranger_idle_limit = milliseconds(200)}));
  // The length of a handshake record that never follows, and nothing at all.
  for (const std::string& bytes : {std::string("\x16\x03\x01\x02\x00", 5), std::string()}) {
    RawConnection connection(served.port());
    connection.send(bytes);
    connection.wait_for_close();
  }
  for (const char* bytes : {"GET /ec", "PUT /echo HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc"}) {
    TlsConnection connection(served.port());
    ASSERT_TRUE(connection.handshake());
    connection.send(bytes);
    EXPECT_EQ(connection.read_all(), "") << bytes;
  }
  // A TLS record whose rest never follows.
  TlsConnection connection(served.port());
  ASSERT_TRUE(connection.handshake());
  connection.send_raw(std::string("\x17\x03\x03\x40\x00", 5));
  EXPECT_EQ(connection.read_all(), "");
  expect_that_it_serves(served);
}

TEST(Tls, ClosesOnWhatIsNotTls) {
  Served served(with_tls());
  for (const std::string& bytes : {put("x"), std::string(100'000, '\xff')}) {
    RawConnection plain(served.port());
    plain.send(bytes);
    EXPECT_EQ(plain.read_all().find("HTTP/1.1"), std::string::npos);
    TlsConnection later(served.port());
    ASSERT_TRUE(later.handshake());
    later.send_raw(bytes);
    EXPECT_EQ(later.read_all(), "");
  }
  expect_that_it_serves(served);
}

TEST(Tls, ClosesOnHalfClosedConnections) {
  Served served(with_tls());
  for (const char* bytes : {"", "GET /echo HTTP/1.1\r\nA: b\r\n",
                            "PUT /echo HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc"}) {
    for (const bool says_goodbye : {true, false}) {
      TlsConnection connection(served.port());
      ASSERT_TRUE(connection.handshake());
      if (*bytes != '\0') connection.send(bytes);
      if (says_goodbye) connection.say_goodbye();
      connection.end_writing();
      EXPECT_EQ(connection.read_all(), "") << bytes;
    }
  }
  RawConnection in_handshake(served.port());
  in_handshake.end_writing();
  in_handshake.wait_for_close();
  expect_that_it_serves(served);
}

TEST(Tls, ClosesOnClientsThatDoNotReadTheirAnswer) {
  Served served(with_tls({.connections_max = 1,
                          .when_full = WhenFull::kEvictStranger,
                          .send_buffer_bytes = 16 * 1024,
                          .write_limit = milliseconds(200)}));
  TlsConnection silent(served.port());
  ASSERT_TRUE(silent.handshake());
  silent.send("GET /large HTTP/1.1\r\nAuthorization: Bearer secret\r\n\r\n");
  // Once the silent client's place is free, another one is served.
  while (true) {
    TlsConnection other(served.port());
    if (!other.handshake()) continue;
    other.send(put("x"));
    EXPECT_TRUE(other.read_until("\r\n\r\nx"));
    break;
  }
}

TEST(Tls, CutsOffAStreamWhoseClientDoesNotRead) {
  Served served(with_tls({.send_buffer_bytes = 64 * 1024, .write_limit = milliseconds(300)}));
  TlsConnection slow(served.port());
  ASSERT_TRUE(slow.handshake());
  slow.send("GET /endless HTTP/1.1\r\n\r\n");
  served.handler.feed.wait_until_asked(1);
  served.handler.feed.wait_for_streams(0);
  EXPECT_LE(served.handler.feed.asked() * test::EndlessStream::kChunkBytes, 32u << 20);
}

TEST(Tls, EndsAStreamWhoseClientLeaves) {
  Served served(with_tls());
  for (const bool says_goodbye : {true, false}) {
    TlsConnection connection(served.port());
    ASSERT_TRUE(connection.handshake());
    connection.send("GET /stream HTTP/1.1\r\n\r\n");
    EXPECT_TRUE(connection.read_until("\r\n\r\n"));
    served.handler.feed.wait_for_streams(1);
    if (says_goodbye) connection.say_goodbye();
    if (!says_goodbye) connection.end_writing();
    served.handler.feed.wait_for_streams(0);
  }
}

TEST(Tls, StreamsToTheEnd) {
  Served served(with_tls());
  TlsConnection connection(served.port());
  ASSERT_TRUE(connection.handshake());
  connection.send("GET /stream HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(connection.read_until("\r\n\r\n"));
  served.handler.feed.add("one");
  served.server->wake_streams();
  EXPECT_TRUE(connection.read_until("3\r\none\r\n"));
  served.handler.feed.end();
  served.server->wake_streams();
  EXPECT_EQ(connection.read_all(), "0\r\n\r\n");
  EXPECT_TRUE(connection.has_ended_orderly());
}

TEST(Tls, StopsWithConnectionsInEveryState) {
  Served served(with_tls());
  RawConnection in_handshake(served.port());
  TlsConnection idle(served.port()), in_head(served.port()), waiting(served.port()),
      streaming(served.port()), unread(served.port());
  for (TlsConnection* connection : {&idle, &in_head, &waiting, &streaming, &unread})
    ASSERT_TRUE(connection->handshake());
  in_head.send("GET /ec");
  waiting.send("GET /wait HTTP/1.1\r\n\r\n");
  const auto late = served.handler.take_waiting();
  streaming.send("GET /stream HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(streaming.read_until("\r\n\r\n"));
  unread.send("GET /endless HTTP/1.1\r\n\r\n");
  served.handler.feed.wait_for_streams(2);
  served.server->stop(milliseconds(50));
  served.handler.feed.wait_for_streams(0);
  late({.body = "too late"});
  for (TlsConnection* connection : {&idle, &in_head, &waiting, &streaming, &unread})
    connection->read_all();
  in_handshake.wait_for_close();
}

TEST(Tls, RefusesACertificateThatIsNone) {
  const auto made = make_tls_context({.certificate = "none", .key = "none"});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, Code::kInvalid);
  const auto other = local::make_local_certificate().value();
  EXPECT_FALSE(
      make_tls_context({local::make_local_certificate().value().certificate, other.key}).ok())
      << "the key of another certificate";
}

}  // namespace
}  // namespace lockstep::http
