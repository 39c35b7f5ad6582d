#include "common/http/message.h"

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/status.hpp>
#include <charconv>

namespace lockstep::http {
namespace {

boost::beast::string_view view(std::string_view text) {
  return {text.data(), text.size()};
}

void append_field(std::string& head, std::string_view name, std::string_view value) {
  head.append(name).append(": ");
  std::transform(value.begin(), value.end(), std::back_inserter(head), [](char c) {
    const bool is_control = static_cast<unsigned char>(c) < ' ' || c == '\x7f';
    return is_control ? ' ' : c;
  });
  head += "\r\n";
}

}  // namespace

std::string_view Head::field(std::string_view name) const {
  for (const Field& field : fields) {
    if (boost::beast::iequals(view(field.name), view(name))) return field.value;
  }
  return {};
}

std::string format_head(const Response& response, const HeadOptions& options) {
  namespace beast_http = boost::beast::http;
  const auto reason = beast_http::obsolete_reason(beast_http::int_to_status(response.status));
  std::string head = "HTTP/1.1 " + std::to_string(response.status) + " ";
  head.append(reason.data(), reason.size()).append("\r\n");
  append_field(head, "Content-Type", response.content_type);
  append_field(head, "Cache-Control", response.cache_control);
  for (const Field& field : response.fields) append_field(head, field.name, field.value);
  if (options.closes) append_field(head, "Connection", "close");
  if (response.stream != nullptr) {
    if (options.is_chunked) append_field(head, "Transfer-Encoding", "chunked");
  } else {
    append_field(head, "Content-Length", std::to_string(response.body.size()));
  }
  return head + "\r\n";
}

std::string format_chunk(std::string_view bytes) {
  char size[2 * sizeof(size_t)];
  const auto [end, ignored] = std::to_chars(size, size + sizeof size, bytes.size(), 16);
  std::string chunk(size, end);
  chunk.reserve(chunk.size() + bytes.size() + 4);
  return chunk.append("\r\n").append(bytes).append("\r\n");
}

}  // namespace lockstep::http
