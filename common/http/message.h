#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/http/stream.h"

namespace lockstep::http {

struct Field {
  std::string name;
  std::string value;
};

// The part of a request that is known before its body is read.
struct Head {
  std::string method;
  std::string target;         // path and query, as received
  std::vector<Field> fields;  // in the order received
  bool is_authentic = false;  // the connection's guard knows who sent it (guard.h)

  // Returns the value of the first field with this name, in any case; empty if there is none.
  std::string_view field(std::string_view name) const;
};

struct Request {
  Head head;
  std::string body;
};

struct Response {
  unsigned status = 200;
  std::string body{};
  std::string content_type = "application/json";
  std::vector<Field> fields{};  // in addition to those that the server sets
  std::string cache_control = "no-store";
  bool keeps_open = true;            // false: the connection ends after this response
  std::shared_ptr<Stream> stream{};  // if set, sent in place of `body`
};

struct HeadOptions {
  bool closes = false;     // the connection ends after the response
  bool is_chunked = true;  // frame a stream in chunks, which HTTP/1.0 does not know
};
// Returns the status line and the fields of a response, up to the empty line.
// Control characters in values become spaces, so no value can add a field.
std::string format_head(const Response& response, const HeadOptions& options);
// Returns the chunk with these bytes, at least one. Source: RFC 9112, section 7.1.
std::string format_chunk(std::string_view bytes);

constexpr char kLastChunk[] = "0\r\n\r\n";
// curl waits for it before it sends a larger body. Source: RFC 9110, section 10.1.1.
constexpr char kContinue[] = "HTTP/1.1 100 Continue\r\n\r\n";

}  // namespace lockstep::http
