#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "controller/kube/mailbox.h"
#include "controller/kube/tls.h"
#include "controller/loop/timers.h"

namespace lockstep::kube {

// HTTP clients of trusted servers, over cpprestsdk, which stays hidden behind this header. It holds
// whole heads and chunks of replies in memory, so use plain_http.h for untrusted servers. No
// exception leaves these functions.

// Sets the number of threads that all clients share; call it before the first client is made.
// cpprestsdk would start 40.
void start_http_threads(size_t threads);

// Ends a process that used these clients: writes what is buffered and skips destructors.
// cpprestsdk's threads may still call back into requests that were cancelled, and end only with the
// process.
[[noreturn]] void exit_with_http_threads(int exit_code);

struct HttpServer {
  std::string url;          // "https://10.0.0.1:443"; a path in it is put before those of requests
  TlsOptions tls{};         // for https; an empty server_name means the URL's host
  std::string proxy_url{};  // "http://user:password@host:port": an HTTP proxy
  std::string user_agent = "lockstep";
  // How often to look at the files of the client's certificate, between requests. If they hold
  // another pair, new connections are made; the old ones end with the requests open on them.
  Duration certificate_interval = std::chrono::seconds(10);
};

struct HttpField {
  std::string name;
  std::string value;  // without control characters
};

struct HttpRequest {
  std::string method = "GET";
  std::string path_and_query = "/";  // percent-encoded
  std::string authorization{};       // "Bearer ...", "Basic ..."
  std::vector<HttpField> fields{};   // other fields; a name may occur several times
  std::string accept = "application/json";
  std::string content_type = "application/json";  // of the body, if any
  std::string body{};
  Duration deadline = std::chrono::seconds(30);  // for everything, including the last byte
  size_t reply_bytes_max = 8u << 20;
};

// Returns the authorization for a token; empty for an empty one.
std::string bearer(const std::string& token);

struct HttpReply {
  int status = 0;
  std::string retry_after{};  // the header as received
  std::string warning{};      // several are joined by commas
  std::string content_type{};
  std::string body{};
};

// Receives a reply as it arrives. All calls are on the loop's thread.
struct HttpStreamHandler {
  // Receives complete lines of a reply with status 200, without empty ones.
  std::function<void(std::vector<std::string> lines)> on_lines;
  // If set, receives the bytes as they arrive instead. Whether the last line is complete is then
  // not checked.
  std::function<void(std::string bytes)> on_bytes{};
  // Called once. For status 200: a reply with an empty body if the server ended it properly, after
  // a whole line; else an error. For another status: the whole reply, or an error.
  std::function<void(Result<HttpReply>)> on_end;
};

// An open request. Destroying it cancels it; no handler is called afterwards.
class HttpHandle {
 public:
  virtual ~HttpHandle() = default;
};

// A client of one server. Connections are reused. Redirects are not followed: they would carry the
// token to wherever they point. Used from the loop's thread, on which all answers come. Destroying
// it cancels open requests without an answer; only that must happen before the mailbox and the
// timers are destroyed.
class HttpClient {
 public:
  HttpClient(HttpServer server, Mailbox& mailbox, loop::Timers& timers);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Answers exactly once, at the latest at the deadline (kTimeout). kUnavailable if there is no
  // connection or it breaks; kInvalid for a reply that is too large.
  void send(HttpRequest request, std::function<void(Result<HttpReply>)> done);
  // Takes at most `pending_bytes_max` from the server before the handler has seen them: the rest
  // waits in the network.
  std::unique_ptr<HttpHandle> stream(HttpRequest request, HttpStreamHandler handler,
                                     size_t pending_bytes_max = 4u << 20);
  // Sets the client certificate for new connections; the old ones end with the requests open on
  // them. Certificate and key must fit together.
  void use_certificate(std::string certificate_pem, std::string key_pem);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::kube
