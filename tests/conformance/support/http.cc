#include "tests/conformance/support/http.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace lockstep::conformance {
namespace {

constexpr size_t kReplyBytesMax = 64u << 20;
constexpr size_t kHeadBytesMax = 256u << 10;

std::string head_of(const Endpoint& endpoint, const Request& request) {
  std::string text = request.method + " " + request.target + " HTTP/1.1\r\nHost: " + endpoint.host +
                     ":" + endpoint.port + "\r\nConnection: close\r\n";
  for (const auto& [name, value] : request.headers) text += name + ": " + value + "\r\n";
  if (!request.body.empty() || request.method == "POST" || request.method == "PUT" ||
      request.method == "PATCH")
    text += "Content-Length: " + std::to_string(request.body.size()) + "\r\n";
  return text + "\r\n";
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

Result<size_t> number(std::string_view text, int base) {
  size_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end == text.data() || value > kReplyBytesMax)
    return corrupt("[http] expected a length, found \"" + std::string(text.substr(0, 40)) + "\"");
  return value;
}

void parse_body(Reply& reply) {
  JsonLimits limits{.bytes_max = kReplyBytesMax, .depth_max = 200, .values_max = 5'000'000};
  if (Result<Json> body = parse_json(reply.text, limits); body.ok()) reply.body = *std::move(body);
}

}  // namespace

std::string Reply::header(const std::string& name) const {
  auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

Result<std::unique_ptr<ReplyStream>> ReplyStream::open(const Endpoint& endpoint,
                                                       const Request& request) {
  TRY_ASSIGN(std::unique_ptr<Connection> connection, Connection::open(endpoint));
  std::unique_ptr<ReplyStream> stream(new ReplyStream(std::move(connection)));
  TRY(stream->connection_->write(head_of(endpoint, request)));
  // Ignores write errors: a server may refuse a request before it has the whole body, and its reply
  // is what matters.
  (void)stream->connection_->write(request.body);
  TRY(stream->read_head());
  return stream;
}

Status ReplyStream::fill() {
  TRY_ASSIGN(std::string more, connection_->read());
  if (more.empty()) return unavailable("[http] the connection ended within a reply");
  buffer_ += more;
  return {};
}

Result<std::string> ReplyStream::take_line() {
  size_t end = 0;
  while ((end = buffer_.find("\r\n")) == std::string::npos) {
    if (buffer_.size() > kHeadBytesMax) return corrupt("[http] a line without an end");
    TRY(fill());
  }
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 2);
  return line;
}

Status ReplyStream::read_head() {
  TRY_ASSIGN(std::string first, take_line());
  if (!first.starts_with("HTTP/1.1 ") || first.size() < 12)
    return corrupt("[http] expected HTTP/1.1, found \"" + first + "\"");
  TRY_ASSIGN(size_t code, number(std::string_view(first).substr(9, 3), 10));
  head_.code = static_cast<int>(code);
  while (true) {
    TRY_ASSIGN(std::string line, take_line());
    if (line.empty()) break;
    size_t colon = line.find(':');
    if (colon == std::string::npos) return corrupt("[http] not a header: \"" + line + "\"");
    size_t value = line.find_first_not_of(' ', colon + 1);
    std::string& stored = head_.headers[lower(line.substr(0, colon))];
    stored += (stored.empty() ? "" : ", ") + (value == std::string::npos ? "" : line.substr(value));
  }
  if (head_.code == 100) {
    head_ = {};
    return read_head();
  }
  chunked_ = lower(head_.header("transfer-encoding")) == "chunked";
  if (std::string length = head_.header("content-length"); !length.empty()) {
    TRY_ASSIGN(left_, number(length, 10));
  }
  return {};
}

Result<std::string> ReplyStream::read_chunk() {
  TRY_ASSIGN(std::string head, take_line());
  TRY_ASSIGN(size_t size, number(std::string_view(head).substr(0, head.find(';')), 16));
  while (buffer_.size() < size + 2) TRY(fill());
  if (buffer_.compare(size, 2, "\r\n") != 0) return corrupt("[http] a chunk without its end");
  std::string chunk = buffer_.substr(0, size);
  buffer_.erase(0, size + 2);
  ended_ = size == 0;
  return chunk;
}

Result<std::string> ReplyStream::read() {
  if (ended_) return std::string();
  if (chunked_) return read_chunk();
  if (left_ && *left_ == 0) return std::string();
  if (buffer_.empty()) {
    TRY_ASSIGN(buffer_, connection_->read());
    if (buffer_.empty() && left_) return unavailable("[http] the connection ended within a reply");
  }
  std::string bytes = buffer_.substr(0, left_.value_or(buffer_.size()));
  buffer_.clear();
  if (left_) *left_ -= bytes.size();
  return bytes;
}

Result<std::optional<std::string>> ReplyStream::read_line() {
  size_t end = 0;
  while ((end = line_.find('\n')) == std::string::npos) {
    if (line_.size() > kReplyBytesMax) return corrupt("[http] a line without an end");
    TRY_ASSIGN(std::string more, read());
    if (more.empty()) {
      if (!line_.empty()) return corrupt("[http] the stream ended within a line: " + line_);
      return std::optional<std::string>();
    }
    line_ += more;
  }
  std::string line = line_.substr(0, end);
  line_.erase(0, end + 1);
  return std::optional<std::string>(std::move(line));
}

Result<Reply> exchange(const Endpoint& endpoint, const Request& request) {
  TRY_ASSIGN(std::unique_ptr<ReplyStream> stream, ReplyStream::open(endpoint, request));
  Reply reply = stream->head();
  while (true) {
    TRY_ASSIGN(std::string more, stream->read());
    if (more.empty()) break;
    reply.text += more;
    if (reply.text.size() > kReplyBytesMax) return corrupt("[http] the reply is too large");
  }
  parse_body(reply);
  return reply;
}

std::string percent_encoded(const std::string& text) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string encoded;
  for (char c : text) {
    auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) || std::string_view("-._~").find(c) != std::string_view::npos) {
      encoded += c;
    } else {
      encoded += '%';
      encoded += kDigits[byte >> 4];
      encoded += kDigits[byte & 15];
    }
  }
  return encoded;
}

}  // namespace lockstep::conformance
