#include "tests/controller/kube/tls_server.h"

#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <boost/asio/read_until.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>

#include "tests/support/program.h"

namespace lockstep::test {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

void openssl(std::vector<std::string> arguments, const std::filesystem::path& folder) {
  arguments.insert(arguments.begin(), "openssl");
  const Outcome outcome = run_program({.arguments = arguments, .folder = folder});
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
}

const std::vector<std::string> kNewKey = {"-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                                          "-nodes"};

constexpr unsigned char kSessions[] = {'s'};

// Turns "Name:value" into "Name: value" after the request line: both are the same in HTTP.
std::string with_spaces(std::string head) {
  size_t line = head.find('\n');
  while (line != std::string::npos) {
    const size_t end = head.find_first_of(":\n", line + 1);
    const bool is_field = end != std::string::npos && head[end] == ':';
    if (is_field && head.compare(end + 1, 1, " ") != 0) head.insert(end + 1, " ");
    line = head.find('\n', end);
  }
  return head;
}

std::string common_name(SSL* connection) {
  X509* certificate = SSL_get1_peer_certificate(connection);
  if (certificate == nullptr) return "";
  char name[256] = "";
  X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name, sizeof name);
  X509_free(certificate);
  return name;
}

}  // namespace

Certificates::Certificates() {
  make_authority("ca");
  make_authority("stranger");
  sign("server", "/CN=server", "subjectAltName=IP:127.0.0.1,DNS:api.example");
  sign("named", "/CN=127.0.0.1", "subjectAltName=DNS:api.example");
  sign("client", "/O=team/CN=jane", "basicConstraints=CA:FALSE");
  sign("second", "/O=team/CN=joan", "basicConstraints=CA:FALSE");
}

void Certificates::make_authority(const std::string& name) {
  std::vector<std::string> arguments = {
      "req",         "-x509", "-keyout",     name + ".key", "-out",
      name + ".crt", "-subj", "/CN=" + name, "-days",       "2"};
  arguments.insert(arguments.end(), kNewKey.begin(), kNewKey.end());
  openssl(arguments, folder_.path());
}

void Certificates::sign(const std::string& name, const std::string& subject,
                        const std::string& names) {
  std::vector<std::string> request = {"req",         "-keyout", name + ".key", "-out",
                                      name + ".csr", "-subj",   subject};
  request.insert(request.end(), kNewKey.begin(), kNewKey.end());
  openssl(request, folder_.path());
  write_file(folder_.path() / "names", names + "\n");
  openssl({"x509", "-req", "-in", name + ".csr", "-CA", "ca.crt", "-CAkey", "ca.key",
           "-CAcreateserial", "-days", "2", "-out", name + ".crt", "-extfile", "names"},
          folder_.path());
}

TlsServer::TlsServer(const Options& options) : options_(options) {
  tls_.use_certificate_chain_file(options.certificate);
  tls_.use_private_key_file(options.key, asio::ssl::context::pem);
  if (!options.client_ca.empty()) {
    tls_.load_verify_file(options.client_ca);
    tls_.set_verify_mode(asio::ssl::verify_peer);
  }
  // Without it, OpenSSL ends a handshake in which a client with a certificate resumes a session.
  if (options.resumes) SSL_CTX_set_session_id_context(tls_.native_handle(), kSessions, 1);
  acceptor_.open(tcp::v4());
  acceptor_.bind({asio::ip::address_v4::loopback(), 0});
  acceptor_.listen();
  port_ = acceptor_.local_endpoint().port();
  thread_ = std::thread([this] { serve_all(); });
}

TlsServer::~TlsServer() {
  is_over_ = true;
  tcp::socket wake(io_);
  boost::system::error_code ignored;
  wake.connect({asio::ip::address_v4::loopback(), static_cast<uint16_t>(port_)}, ignored);
  thread_.join();
  for (Connection& connection : connections_) {
    connection.stream.next_layer().shutdown(tcp::socket::shutdown_both, ignored);
    connection.thread.join();
  }
}

std::vector<TlsRequest> TlsServer::requests() {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void TlsServer::wait_for_connections(int count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return open_ == count; });
}

void TlsServer::count(int difference) {
  const std::lock_guard lock(mutex_);
  open_ += difference;
  changed_.notify_all();
}

void TlsServer::serve_all() {
  while (true) {
    boost::system::error_code error;
    tcp::socket socket = acceptor_.accept(error);
    if (is_over_) return;
    if (error) continue;
    Connection& connection =
        connections_.emplace_back(Connection{Stream(std::move(socket), tls_), {}});
    count(1);
    connection.thread = std::thread([this, &connection] {
      serve(connection.stream);
      count(-1);
    });
  }
}

// Answers one request per connection, or all of them with keeps_open.
void TlsServer::serve(Stream& stream) {
  boost::system::error_code error;
  stream.handshake(asio::ssl::stream_base::server, error);
  if (error) return;
  while (answer(stream) && options_.keeps_open) {
  }
  stream.shutdown(error);
}

bool TlsServer::answer(Stream& stream) {
  boost::system::error_code error;
  std::string head;
  asio::read_until(stream, asio::dynamic_buffer(head, 1 << 16), "\r\n\r\n", error);
  if (error) return false;
  const char* name = SSL_get_servername(stream.native_handle(), TLSEXT_NAMETYPE_host_name);
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back({with_spaces(head), common_name(stream.native_handle()),
                         name == nullptr ? "" : name,
                         SSL_session_reused(stream.native_handle()) == 1});
  }
  const std::string reply = std::string("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n") +
                            (options_.keeps_open ? "" : "Connection: close\r\n") + options_.fields +
                            "Content-Length: 2\r\n\r\n{}";
  asio::write(stream, asio::buffer(reply), error);
  return !error;
}

}  // namespace lockstep::test
