#include "common/http/request_reader.h"

#include <algorithm>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/rfc7230.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstring>
#include <utility>

namespace lockstep::http {
namespace {

namespace beast_http = boost::beast::http;

constexpr size_t kHeadRoom = 4 * 1024;
constexpr size_t kBodyRoom = 64 * 1024;
constexpr size_t kChunkedEndBytes = 5;

std::string text(boost::beast::string_view view) {
  return std::string(view.data(), view.size());
}

}  // namespace

struct RequestReader::Parser : beast_http::request_parser<beast_http::string_body> {};

RequestReader::RequestReader(const Limits& limits) : limits_(limits) {}
RequestReader::~RequestReader() = default;

std::span<char> RequestReader::prepare() {
  const bool in_body = parser_ != nullptr && parser_->is_header_done();
  if (begin_ == end_) {
    begin_ = end_ = 0;
    // An idle connection keeps no large buffer.
    if (!in_body && buffer_.size() > kBodyRoom) std::string().swap(buffer_);
  }
  const size_t room = in_body ? kBodyRoom : kHeadRoom;
  if (buffer_.size() - end_ < room && begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
  }
  if (buffer_.size() - end_ < room) buffer_.resize(end_ + room);
  return {buffer_.data() + end_, room};
}

void RequestReader::commit(size_t bytes) {
  end_ += bytes;
}

void RequestReader::begin() {
  parser_ = std::make_unique<Parser>();
  parser_->header_limit(static_cast<uint32_t>(limits_.header_bytes_max));
  parser_->body_limit(limits_.body_bytes_max);
  head_bytes_ = 0;
  body_is_too_large_ = false;
}

RequestReader::Progress RequestReader::read_head() {
  while (!parser_->is_header_done()) {
    if (const Progress progress = step(); progress != Progress::kComplete) return progress;
  }
  return Progress::kComplete;
}

Head RequestReader::head() const {
  const auto& message = parser_->get();
  Head head{.method = text(message.method_string()), .target = text(message.target())};
  for (const auto& field : message)
    head.fields.push_back({text(field.name_string()), text(field.value())});
  return head;
}

bool RequestReader::is_http_1_0() const {
  return parser_->get().version() < 11;
}

bool RequestReader::expects_continue() const {
  if (is_http_1_0()) return false;
  return beast_http::token_list(parser_->get()[beast_http::field::expect]).exists("100-continue");
}

void RequestReader::limit_body(size_t bytes_max) {
  const auto length = parser_->content_length();
  body_is_too_large_ = length && *length > bytes_max;
  parser_->body_limit(std::min<uint64_t>(bytes_max, limits_.body_bytes_max));
}

RequestReader::Progress RequestReader::read_body() {
  if (body_is_too_large_) return fail(413, "the request body is larger than its limit");
  parser_->eager(true);
  while (!parser_->is_done()) {
    if (const Progress progress = step(); progress != Progress::kComplete) return progress;
  }
  return Progress::kComplete;
}

// Parses what has arrived. kComplete: the parser got further.
RequestReader::Progress RequestReader::step() {
  // Beast 1.74 asserts that the end of a chunked body, 0\r\n\r\n, arrives in at least that many
  // bytes. As long as there are fewer, more have to follow.
  const bool in_chunks = parser_->is_header_done() && parser_->chunked();
  if (end_ - begin_ < (in_chunks ? kChunkedEndBytes : 1)) return Progress::kNeedsMore;
  boost::system::error_code error;
  const bool in_head = !parser_->is_header_done();
  const size_t used = parser_->put({buffer_.data() + begin_, end_ - begin_}, error);
  begin_ += used;
  size_t unparsed = end_ - begin_;
  if (in_head) {
    // Beast limits only what it has not consumed, and it consumes whole fields as they arrive.
    head_bytes_ += used;
    if (parser_->is_header_done()) unparsed = 0;  // of the body
    if (head_bytes_ + unparsed > limits_.header_bytes_max) error = beast_http::error::header_limit;
  }
  if (error == beast_http::error::need_more) {
    // Beast does not limit the extensions of a chunk and the trailer.
    if (unparsed <= limits_.header_bytes_max + kBodyRoom) return Progress::kNeedsMore;
    error = beast_http::error::header_limit;
  }
  if (!error) return Progress::kComplete;
  if (error == beast_http::error::body_limit)
    return fail(413, "the request body is larger than its limit");
  if (error == beast_http::error::header_limit || error == beast_http::error::buffer_overflow) {
    return fail(431, "the request header is larger than " +
                         std::to_string(limits_.header_bytes_max) + " bytes");
  }
  return fail(400, "expected an HTTP/1.1 request: " + error.message());
}

RequestReader::Progress RequestReader::fail(unsigned status, std::string message) {
  failure_ = {status, std::move(message)};
  return Progress::kFailed;
}

bool RequestReader::is_complete() const {
  return parser_->is_done();
}

bool RequestReader::keeps_open() const {
  return parser_->keep_alive();
}

std::string RequestReader::take_body() {
  return std::move(parser_->get().body());
}

}  // namespace lockstep::http
