#include "common/http/transport.h"

#include <boost/asio/write.hpp>
#include <utility>

namespace lockstep::http {
namespace {

namespace asio = boost::asio;

class PlainTransport final : public Transport {
 public:
  explicit PlainTransport(Socket socket) : socket_(std::move(socket)) {}

  void handshake(Done done) override { done({}, 0); }
  void read_some(std::span<char> room, Done done) override { read_raw(room, std::move(done)); }
  void write(const std::string& bytes, Done done) override {
    asio::async_write(socket_, asio::buffer(bytes), std::move(done));
  }
  void say_goodbye(Done done) override { done({}, 0); }

 private:
  Socket& socket() override { return socket_; }

  Socket socket_;
};

}  // namespace

void Transport::end_writing() {
  Error ignored;
  socket().shutdown(Socket::shutdown_send, ignored);
}

void Transport::read_raw(std::span<char> room, Done done) {
  socket().async_read_some(asio::buffer(room.data(), room.size()), std::move(done));
}

void Transport::wait_for_input(Done done) {
  socket().async_wait(Socket::wait_read, [done = std::move(done)](Error error) { done(error, 0); });
}

void Transport::close() {
  Error ignored;
  socket().shutdown(Socket::shutdown_both, ignored);
  socket().close(ignored);
}

std::unique_ptr<Transport> make_plain_transport(Transport::Socket socket) {
  return std::make_unique<PlainTransport>(std::move(socket));
}

}  // namespace lockstep::http
