#include "common/http/tls.h"

#include <openssl/ssl.h>

#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <boost/system/system_error.hpp>
#include <utility>

#include "common/http/transport.h"

namespace lockstep::http {
namespace {

namespace asio = boost::asio;
namespace ssl = boost::asio::ssl;

class TlsTransport final : public Transport {
 public:
  TlsTransport(Socket socket, ssl::context& context) : stream_(std::move(socket), context) {}

  void handshake(Done done) override {
    stream_.async_handshake(ssl::stream_base::server,
                            [done = std::move(done)](Error error) { done(error, 0); });
  }
  void read_some(std::span<char> room, Done done) override {
    stream_.async_read_some(asio::buffer(room.data(), room.size()), std::move(done));
  }
  void write(const std::string& bytes, Done done) override {
    asio::async_write(stream_, asio::buffer(bytes), std::move(done));
  }
  // Sends close_notify, by which a client tells an orderly end from a broken connection, and waits
  // for the client's.
  void say_goodbye(Done done) override {
    stream_.async_shutdown([done = std::move(done)](Error error) { done(error, 0); });
  }

 private:
  Socket& socket() override { return stream_.next_layer(); }

  ssl::stream<Socket> stream_;
};

class OpenSslContext final : public TlsContext {
 public:
  Status use(const CertificatePem& pem) {
    boost::system::error_code error;
    context_.set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 |
                             ssl::context::no_sslv3 | ssl::context::no_tlsv1 |
                             ssl::context::no_tlsv1_1 | SSL_OP_NO_RENEGOTIATION,
                         error);
    if (!error) context_.use_certificate_chain(asio::buffer(pem.certificate), error);
    if (!error) context_.use_private_key(asio::buffer(pem.key), ssl::context::pem, error);
    if (error) return invalid("[http] the certificate can't be used: " + error.message());
    return {};
  }
  std::unique_ptr<Transport> wrap(Transport::Socket socket) override {
    try {
      return std::make_unique<TlsTransport>(std::move(socket), context_);
    } catch (const boost::system::system_error&) {
      return nullptr;
    }
  }

 private:
  ssl::context context_{ssl::context::tls_server};
};

}  // namespace

Result<std::shared_ptr<TlsContext>> make_tls_context(const CertificatePem& pem) {
  auto context = std::make_shared<OpenSslContext>();
  TRY(context->use(pem));
  return std::shared_ptr<TlsContext>(std::move(context));
}

}  // namespace lockstep::http
