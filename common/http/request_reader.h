#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "common/http/message.h"

namespace lockstep::http {

// Reads the requests of one connection, one after the other, from its bytes as they arrive. Memory
// is bounded by the limits. No sockets and no time, so tests and fuzzing feed it directly.
class RequestReader {
 public:
  enum class Progress { kNeedsMore, kComplete, kFailed };
  struct Limits {
    size_t header_bytes_max = 0;
    size_t body_bytes_max = 0;
  };
  struct Failure {
    unsigned status = 0;  // 400, 413 or 431
    std::string message;
  };

  explicit RequestReader(const Limits& limits);
  ~RequestReader();

  // Returns room for the next bytes of the connection. commit() says how many arrived in it.
  std::span<char> prepare();
  void commit(size_t bytes);
  // Returns whether bytes have arrived that belong to no request yet.
  bool has_bytes() const { return begin_ < end_; }

  // Begins the next request. The members below are about it.
  void begin();
  // Reads the head. After kFailed, nothing more can be read from the connection.
  Progress read_head();
  Head head() const;
  bool expects_continue() const;  // which HTTP/1.0 does not know
  bool is_http_1_0() const;
  // Lowers the limit of the body. Call between read_head() and read_body().
  void limit_body(size_t bytes_max);
  // Returns whether the announced length of the body is above its limit: read_body() will fail.
  bool body_is_too_large() const { return body_is_too_large_; }
  Progress read_body();
  // Returns whether head and body have been read.
  bool is_complete() const;
  // Returns whether the client wants to send another request after this one.
  bool keeps_open() const;
  std::string take_body();
  const Failure& failure() const { return failure_; }

 private:
  struct Parser;

  Progress step();
  Progress fail(unsigned status, std::string message);

  const Limits limits_;
  std::unique_ptr<Parser> parser_;
  std::string buffer_;  // received and not parsed yet: from begin_ to end_
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t head_bytes_ = 0;  // parsed, of this request's head
  bool body_is_too_large_ = false;
  Failure failure_;
};

}  // namespace lockstep::http
