#include "tests/conformance/support/connection.h"

#include <netdb.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace lockstep::conformance {
namespace {

constexpr size_t kBlock = 64u << 10;

Error io_error(const char* what) {
  if (errno == EAGAIN || errno == EWOULDBLOCK)
    return timed_out(std::string("[connection] ") + what + ": the server is silent");
  return errno_error(std::string("[connection] ") + what, errno);
}

Error tls_error(const std::string& what) {
  char text[256] = "no reason given";
  if (unsigned long code = ERR_get_error(); code != 0) ERR_error_string_n(code, text, sizeof text);
  ERR_clear_error();
  return unavailable("[tls] " + what + ": " + text);
}

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() { close(fd_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

Result<std::unique_ptr<Socket>> dial(const Endpoint& endpoint) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (int error = getaddrinfo(endpoint.host.c_str(), endpoint.port.c_str(), &hints, &found);
      error != 0)
    return unavailable("[connection] " + endpoint.host + ": " + gai_strerror(error));
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  int last = ECONNREFUSED;
  for (addrinfo* one = found; one != nullptr; one = one->ai_next) {
    auto made = std::make_unique<Socket>(
        socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol));
    timeval silence{.tv_sec = Connection::kSilenceSeconds};
    int no_delay = 1;
    setsockopt(made->fd(), SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof silence);
    setsockopt(made->fd(), SOL_SOCKET, SO_SNDTIMEO, &silence, sizeof silence);
    setsockopt(made->fd(), IPPROTO_TCP, TCP_NODELAY, &no_delay, sizeof no_delay);
    if (connect(made->fd(), one->ai_addr, one->ai_addrlen) == 0) return made;
    last = errno;
  }
  return errno_error("[connection] " + endpoint.host + ":" + endpoint.port, last);
}

class PlainConnection final : public Connection {
 public:
  explicit PlainConnection(std::unique_ptr<Socket> socket) : socket_(std::move(socket)) {}

  Status write(std::string_view bytes) override {
    while (!bytes.empty()) {
      ssize_t sent = send(socket_->fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0) return io_error("send");
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return {};
  }
  Result<std::string> read() override {
    std::string block(kBlock, '\0');
    ssize_t bytes = recv(socket_->fd(), block.data(), block.size(), 0);
    if (bytes < 0) return io_error("recv");
    block.resize(static_cast<size_t>(bytes));
    return block;
  }
  void abort() override { shutdown(socket_->fd(), SHUT_RDWR); }

 private:
  std::unique_ptr<Socket> socket_;
};

template <class T, void (*kFree)(T*)>
struct Freed {
  void operator()(T* value) const { kFree(value); }
};
using Context = std::unique_ptr<SSL_CTX, Freed<SSL_CTX, SSL_CTX_free>>;
using Tls = std::unique_ptr<SSL, Freed<SSL, SSL_free>>;
using Bio = std::unique_ptr<BIO, Freed<BIO, BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Freed<X509, X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY, EVP_PKEY_free>>;

Bio text_bio(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

Status trust(SSL_CTX* context, const std::string& ca_pem) {
  if (ca_pem.empty()) {
    SSL_CTX_set_default_verify_paths(context);
    return {};
  }
  Bio bio = text_bio(ca_pem);
  int count = 0;
  while (Certificate one{PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)}) {
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context), one.get());
    ++count;
  }
  ERR_clear_error();
  if (count == 0) return invalid("[tls] the authority's PEM holds no certificate");
  return {};
}

Status identify(SSL_CTX* context, const Endpoint& endpoint) {
  if (endpoint.certificate_pem.empty()) return {};
  Bio certificates = text_bio(endpoint.certificate_pem);
  Certificate own(PEM_read_bio_X509(certificates.get(), nullptr, nullptr, nullptr));
  Bio keys = text_bio(endpoint.key_pem);
  Key key(PEM_read_bio_PrivateKey(keys.get(), nullptr, nullptr, nullptr));
  if (!own || !key) return tls_error("could not read the client's certificate or key");
  if (SSL_CTX_use_certificate(context, own.get()) != 1 ||
      SSL_CTX_use_PrivateKey(context, key.get()) != 1)
    return tls_error("the client's certificate and key do not match");
  return {};
}

class TlsConnection final : public Connection {
 public:
  TlsConnection(std::unique_ptr<Socket> socket, Context context, Tls tls)
      : socket_(std::move(socket)), context_(std::move(context)), tls_(std::move(tls)) {}

  Status write(std::string_view bytes) override {
    if (bytes.empty()) return {};
    if (SSL_write(tls_.get(), bytes.data(), static_cast<int>(bytes.size())) <= 0)
      return tls_error("write");
    return {};
  }
  Result<std::string> read() override {
    std::string block(kBlock, '\0');
    errno = 0;
    int bytes = SSL_read(tls_.get(), block.data(), static_cast<int>(block.size()));
    if (bytes <= 0) {
      int error = SSL_get_error(tls_.get(), bytes);
      if (error == SSL_ERROR_ZERO_RETURN) return std::string();
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ECONNRESET) return io_error("read");
      return tls_error("read");
    }
    block.resize(static_cast<size_t>(bytes));
    return block;
  }
  void abort() override { shutdown(socket_->fd(), SHUT_RDWR); }

 private:
  std::unique_ptr<Socket> socket_;
  Context context_;
  Tls tls_;
};

bool is_address(const std::string& name) {
  return name.find(':') != std::string::npos ||
         name.find_first_not_of("0123456789.") == std::string::npos;
}

Result<std::unique_ptr<Connection>> secure(const Endpoint& endpoint,
                                           std::unique_ptr<Socket> socket) {
  Context context(SSL_CTX_new(TLS_client_method()));
  TRY(trust(context.get(), endpoint.ca_pem));
  TRY(identify(context.get(), endpoint));
  SSL_CTX_set_mode(context.get(), SSL_MODE_AUTO_RETRY);
  SSL_CTX_set_verify(context.get(), endpoint.verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nullptr);
  Tls tls(SSL_new(context.get()));
  const std::string& name = endpoint.server_name.empty() ? endpoint.host : endpoint.server_name;
  if (is_address(name)) {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls.get()), name.c_str());
  } else {
    SSL_set_tlsext_host_name(tls.get(), name.c_str());
    SSL_set1_host(tls.get(), name.c_str());
  }
  SSL_set_fd(tls.get(), socket->fd());
  if (SSL_connect(tls.get()) != 1) return tls_error("handshake with " + endpoint.host);
  return std::unique_ptr<Connection>(
      new TlsConnection(std::move(socket), std::move(context), std::move(tls)));
}

}  // namespace

Result<std::unique_ptr<Connection>> Connection::open(const Endpoint& endpoint) {
  TRY_ASSIGN(std::unique_ptr<Socket> socket, dial(endpoint));
  if (endpoint.tls) return secure(endpoint, std::move(socket));
  return std::unique_ptr<Connection>(new PlainConnection(std::move(socket)));
}

}  // namespace lockstep::conformance
