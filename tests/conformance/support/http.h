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
  Json body;                                   // the body, where it is JSON; else null

  std::string header(const std::string& name) const;
};

// The body of a reply as it comes: frames chunks, and knows whether the server ended it.
class ReplyStream {
 public:
  // Sends the request and reads the head of its reply.
  static Result<std::unique_ptr<ReplyStream>> open(const Endpoint& endpoint,
                                                   const Request& request);

  int code() const { return head_.code; }
  const Reply& head() const { return head_; }
  // The next bytes of the body; empty: it has come to its end as the framing says.
  Result<std::string> read();
  // The next line without its end; nullopt: the body has ended. An unfinished last line is an
  // error.
  Result<std::optional<std::string>> read_line();
  // From any thread: a read that waits ends at once, with an error.
  void abort() { connection_->abort(); }

 private:
  explicit ReplyStream(std::unique_ptr<Connection> connection)
      : connection_(std::move(connection)) {}
  Status read_head();
  Status fill();  // at least one more byte; kUnavailable at the end
  Result<std::string> take_line();
  Result<std::string> read_chunk();

  std::unique_ptr<Connection> connection_;
  Reply head_;
  std::string buffer_;
  std::optional<size_t> left_;  // of a body with Content-Length
  bool chunked_ = false;
  bool ended_ = false;
  std::string line_;
};

// One request on a connection of its own. kUnavailable, kTimeout, kCorrupt (not HTTP).
Result<Reply> exchange(const Endpoint& endpoint, const Request& request);

// As a value of a query.
std::string percent_encoded(const std::string& text);

}  // namespace lockstep::conformance
