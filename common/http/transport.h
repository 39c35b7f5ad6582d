#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace lockstep::http {

// The bytes of one connection, plain or encrypted. Sessions are compiled against this interface, so
// asio's templates are instantiated once per kind of connection, in its source.
//
// Runs on the server's thread. One read and one write may be pending at a time. Buffers and the
// transport outlive the operation: its callback owns the session. After close(), pending operations
// complete with an error.
class Transport {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using Error = boost::system::error_code;
  using Done = std::function<void(Error, size_t)>;

  virtual ~Transport() = default;
  // Has to complete before anything is read or written.
  virtual void handshake(Done done) = 0;
  virtual void read_some(std::span<char> room, Done done) = 0;
  // Writes all bytes.
  virtual void write(const std::string& bytes, Done done) = 0;
  // Tells the client that nothing more will be written, apart from the end of the TCP stream.
  virtual void say_goodbye(Done done) = 0;

  // Ends what is written, in TCP.
  void end_writing();
  // Reads bytes from the socket that nobody decrypts.
  void read_raw(std::span<char> room, Done done);
  // Completes when the client sends anything or disconnects.
  void wait_for_input(Done done);
  void close();

 protected:
  virtual Socket& socket() = 0;
};

std::unique_ptr<Transport> make_plain_transport(Transport::Socket socket);

// Makes encrypted transports (tls.h).
class TlsContext {
 public:
  virtual ~TlsContext() = default;
  // Returns null, and closes the socket, if memory is short.
  virtual std::unique_ptr<Transport> wrap(Transport::Socket socket) = 0;
};

}  // namespace lockstep::http
