#pragma once

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <condition_variable>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/job_run.h"

namespace lockstep::test {

// Certificates made by the program `openssl` in a temporary folder: a certificate authority, a
// second one that nobody trusts, and certificates for servers and two clients.
class Certificates {
 public:
  Certificates();

  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  std::string text(const std::string& name) const { return read_file(folder_.path() / name); }

 private:
  void make_authority(const std::string& name);
  void sign(const std::string& name, const std::string& subject, const std::string& names);

  TemporaryFolder folder_;
};

// A request as the server received it.
struct TlsRequest {
  std::string head;         // request line and header fields
  std::string client_name;  // subject of the client's certificate; empty: none sent
  std::string server_name;  // requested server name (SNI)
  bool resumed = false;     // a session that an earlier connection began
};

// An HTTPS server on a free loopback port. Answers "{}" to everything and records the requests with
// the client's certificate, which the product's own server does not ask for. One thread per
// connection, so a connection that stays open delays no other.
class TlsServer {
 public:
  struct Options {
    std::string certificate;  // paths of PEM files
    std::string key;
    std::string client_ca;    // asks clients for a certificate of this authority
    std::string fields;       // header fields of replies, each with \r\n
    bool keeps_open = false;  // serves a connection until the client ends it
    bool resumes = true;      // false: fails if a client resumes a session
  };
  explicit TlsServer(const Options& options);
  ~TlsServer();

  std::string url() const { return "https://127.0.0.1:" + std::to_string(port_); }
  std::vector<TlsRequest> requests();
  // Waits until that many connections are open.
  void wait_for_connections(int count);

 private:
  using Stream = boost::asio::ssl::stream<boost::asio::ip::tcp::socket>;
  struct Connection {
    Stream stream;
    std::thread thread;
  };

  void serve_all();
  void count(int difference);
  void serve(Stream& stream);
  bool answer(Stream& stream);

  Options options_;
  boost::asio::io_context io_;
  boost::asio::ssl::context tls_{boost::asio::ssl::context::tls_server};
  boost::asio::ip::tcp::acceptor acceptor_{io_};
  int port_ = 0;
  std::atomic<bool> is_over_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  int open_ = 0;  // connections
  std::vector<TlsRequest> requests_;
  std::list<Connection> connections_;  // added to by thread_ only
  std::thread thread_;
};

}  // namespace lockstep::test
