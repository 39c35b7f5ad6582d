#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/base/json.h"
#include "tests/conformance/support/connection.h"

namespace lockstep::conformance {

struct Request {
  std::string method = "GET";
  std::string target = "/";  // path and query, percent-encoded
  std::map<std::string, std::string> headers{};
  std::string body{};
};

struct Reply {
  int code = 0;
  std::map<std::string, std::string> headers;  // names in lower case; repeated ones joined by ", "
  std::string text;                            // the body
  Json body;                                   // the body if it is JSON; else null

  std::string header(const std::string& name) const;
};

// The body of a reply as it arrives: decodes chunks and knows whether the server ended the body.
class ReplyStream {
 public:
  // Sends the request and reads the head of its reply.
  static Result<std::unique_ptr<ReplyStream>> open(const Endpoint& endpoint,
                                                   const Request& request);

  int code() const { return head_.code; }
  const Reply& head() const { return head_; }
  // Returns the next bytes of the body; empty at the end that the framing declares.
  Result<std::string> read();
  // Returns the next line without its newline; nullopt at the end of the body. An unfinished last
  // line is an error.
  Result<std::optional<std::string>> read_line();
  // Makes a blocked read fail immediately. Callable from any thread.
  void abort() { connection_->abort(); }

 private:
  explicit ReplyStream(std::unique_ptr<Connection> connection)
      : connection_(std::move(connection)) {}
  Status read_head();
  Status fill();  // reads at least one more byte; kUnavailable at the end
  Result<std::string> take_line();
  Result<std::string> read_chunk();

  std::unique_ptr<Connection> connection_;
  Reply head_;
  std::string buffer_;
  std::optional<size_t> left_;  // bytes left of a body with Content-Length
  bool chunked_ = false;
  bool ended_ = false;
  std::string line_;
};

// Sends one request on its own connection. Errors: kUnavailable, kTimeout, kCorrupt (not HTTP).
Result<Reply> exchange(const Endpoint& endpoint, const Request& request);

// Encodes a text as a value of a query.
std::string percent_encoded(const std::string& text);

}  // namespace lockstep::conformance
