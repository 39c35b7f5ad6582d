// Tests HTTPS of the embedded API server with a client that verifies certificates.
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>

#include "local/http/server.h"

namespace lockstep::local {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;

constexpr char kToken[] = "right";

class TlsTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<CertificatePem> made = make_local_certificate();
    ASSERT_TRUE(made.ok());
    certificate_ = *made;
    auto started = ApiServer::start(api_, {.token = kToken, .certificate = certificate_});
    ASSERT_TRUE(started.ok());
    server_ = *std::move(started);
  }

  struct Client {
    std::string authority;  // the PEM that it trusts
    std::string host = "127.0.0.1";
    int version_max = TLS1_3_VERSION;
  };
  // Returns the HTTP status of GET /version, or 0 with the handshake's error in `error`.
  unsigned get(const Client& client, error_code& error) {
    asio::io_context io;
    asio::ssl::context tls(asio::ssl::context::tls_client);
    tls.add_certificate_authority(asio::buffer(client.authority));
    tls.set_verify_mode(asio::ssl::verify_peer);
    SSL_CTX_set_max_proto_version(tls.native_handle(), client.version_max);
    beast::ssl_stream<beast::tcp_stream> stream(io, tls);
    stream.set_verify_callback(asio::ssl::host_name_verification(client.host));
    beast::get_lowest_layer(stream).connect(
        asio::ip::tcp::endpoint(asio::ip::make_address("127.0.0.1"), server_->port()));
    stream.handshake(asio::ssl::stream_base::client, error);
    if (error) return 0;
    http::request<http::empty_body> request(http::verb::get, "/version", 11);
    request.set(http::field::host, "x");
    request.set(http::field::authorization, std::string("Bearer ") + kToken);
    http::write(stream, request, error);
    beast::flat_buffer buffer;
    http::response<http::string_body> response;
    http::read(stream, buffer, response, error);
    return response.result_int();
  }

  SystemClock clock_;
  Api api_{clock_, 1};
  CertificatePem certificate_;
  std::unique_ptr<ApiServer> server_;
};

TEST_F(TlsTest, ServesWhoTrustsItsCertificate) {
  EXPECT_TRUE(server_->url().starts_with("https://127.0.0.1:")) << server_->url();
  for (const char* host : {"127.0.0.1", "localhost"}) {
    error_code error;
    EXPECT_EQ(get({.authority = certificate_.certificate, .host = host}, error), 200u)
        << host << ": " << error.message();
  }
}

TEST_F(TlsTest, IsNotWhoItIsNot) {
  Result<CertificatePem> other = make_local_certificate();
  ASSERT_TRUE(other.ok());
  error_code error;
  EXPECT_EQ(get({.authority = other->certificate}, error), 0u) << "another one's certificate";
  EXPECT_NE(error, error_code());
  error = {};
  EXPECT_EQ(get({.authority = certificate_.certificate, .host = "example.org"}, error), 0u);
  EXPECT_NE(error, error_code());
}

TEST_F(TlsTest, SpeaksNoOldVersions) {
  error_code error;
  EXPECT_EQ(get({.authority = certificate_.certificate, .version_max = TLS1_1_VERSION}, error), 0u);
  EXPECT_NE(error, error_code());
}

TEST_F(TlsTest, ClosesOnWhatIsNoTls) {
  asio::io_context io;
  asio::ip::tcp::socket socket(io);
  socket.connect({asio::ip::make_address("127.0.0.1"), server_->port()});
  asio::write(socket, asio::buffer(std::string("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")));
  std::string received;
  error_code error;
  asio::read(socket, asio::dynamic_buffer(received), error);
  EXPECT_EQ(received.find("HTTP/1.1 200"), std::string::npos);
  EXPECT_TRUE(error);
}

TEST_F(TlsTest, RefusesACertificateThatIsNone) {
  auto started = ApiServer::start(api_, {.certificate = CertificatePem{"none", "none"}});
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.error().code, Code::kInvalid);
}

}  // namespace
}  // namespace lockstep::local
