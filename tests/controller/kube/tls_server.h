#pragma once

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/job_run.h"

namespace lockstep::test {

// A certificate authority, a second one that nobody knows, certificates for servers and two
// clients, made by the program `openssl` in a temporary folder.
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

// What a request looked like to the server.
struct TlsRequest {
  std::string head;         // request line and header fields
  std::string client_name;  // subject of the client's certificate; empty: it came without
  std::string server_name;  // that was asked for (SNI)
};

// HTTPS on a loopback port that the system chose: says "{}" to everything, one connection at a
// time, and remembers what it was asked.
class TlsServer {
 public:
  struct Options {
    std::string certificate;  // files
    std::string key;
    std::string client_ca;    // asks clients for a certificate of this authority
    std::string fields;       // header fields of replies, each with \r\n
    bool keeps_open = false;  // a connection, until the client ends it
  };
  explicit TlsServer(const Options& options);
  ~TlsServer();

  std::string url() const { return "https://127.0.0.1:" + std::to_string(port_); }
  std::vector<TlsRequest> requests();

 private:
  void serve_all();
  using Stream = boost::asio::ssl::stream<boost::asio::ip::tcp::socket>;
  void serve(boost::asio::ip::tcp::socket socket);
  bool answer(Stream& stream);

  Options options_;
  boost::asio::io_context io_;
  boost::asio::ssl::context tls_{boost::asio::ssl::context::tls_server};
  boost::asio::ip::tcp::acceptor acceptor_{io_};
  int port_ = 0;
  std::atomic<bool> is_over_{false};
  std::mutex mutex_;
  std::vector<TlsRequest> requests_;
  std::thread thread_;
};

}  // namespace lockstep::test
