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

namespace lockstep {

// HTTP for clients of servers that are trusted, over cpprestsdk, which stays behind this header and
// holds heads and chunks of replies whole: others are asked by plain_http.h. Exceptions end here.

// Before the first client: the number of threads that all clients share. cpprestsdk would start 40.
void start_http_threads(size_t threads);

struct HttpServer {
  std::string url;          // "https://10.0.0.1:443"; a path in it comes before those of requests
  TlsOptions tls{};         // of https; an empty server_name: the URL's host
  std::string proxy_url{};  // "http://user:password@host:port": an HTTP proxy
  std::string user_agent = "lockstep";
  // How often the files of the client's certificate are looked at, between requests. With another
  // pair in them new connections are made; the old ones end with what is open on them.
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
  std::vector<HttpField> fields{};   // others; one name may be there several times
  std::string accept = "application/json";
  std::string content_type = "application/json";  // of the body, if there is one
  std::string body{};
  Duration deadline = std::chrono::seconds(30);  // for everything, the last byte included
  size_t reply_bytes_max = 8u << 20;
};

// The authorization of a token; empty for an empty one.
std::string bearer(const std::string& token);

struct HttpReply {
  int status = 0;
  std::string retry_after{};  // the header, as it came
  std::string warning{};      // several are joined by commas
  std::string content_type{};
  std::string body{};
};

// Receives a reply as it comes. All calls on the loop's thread.
struct HttpStreamHandler {
  // Complete lines of a reply with status 200, without empty ones ...
  std::function<void(std::vector<std::string> lines)> on_lines;
  // ... or, if it is set, the bytes as they come; then a last line without an end is none of ours.
  std::function<void(std::string bytes)> on_bytes{};
  // Once: the whole reply if its status was another; for 200 one with an empty body when the server
  // ended it well, after a whole line; else an error.
  std::function<void(Result<HttpReply>)> on_end;
};

// An open request. Destroying it cancels it; no handler is called afterwards.
class HttpHandle {
 public:
  virtual ~HttpHandle() = default;
};

// One server. Connections are kept and used again. Redirects are not followed: they would carry the
// token to wherever they point. Used from the loop's thread, on which all answers come. Destroying
// it cancels what is still open, without an answer; only that must come before the end of the
// mailbox and of the timers.
class HttpClient {
 public:
  HttpClient(HttpServer server, Mailbox& mailbox, Timers& timers);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Exactly one answer, at the latest at the deadline (kTimeout); kUnavailable where there is no
  // connection or it breaks; kInvalid for a reply that is too large.
  void send(HttpRequest request, std::function<void(Result<HttpReply>)> done);
  // At most `pending_bytes_max` are taken from the server before the handler has seen them: what it
  // doesn't take waits in the network.
  std::unique_ptr<HttpHandle> stream(HttpRequest request, HttpStreamHandler handler,
                                     size_t pending_bytes_max = 4u << 20);
  // Who this is to the server from now on, over new connections; the old ones end with what is open
  // on them. The two fit together.
  void use_certificate(std::string certificate_pem, std::string key_pem);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
