#include "tests/fuzz/server/request_text.h"

#include <algorithm>

namespace lockstep::fuzz {
namespace {

constexpr std::string_view kBetween = "\n###\n";

// Returns the text before `separator`; `text` becomes the text after it.
std::string_view take_until(std::string_view& text, std::string_view separator) {
  const size_t end = text.find(separator);
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + separator.size());
  return taken;
}

RequestText read_request(std::string_view text) {
  RequestText request;
  std::string_view first = take_until(text, "\n");
  request.method = take_until(first, " ");
  request.target = first;
  while (!text.empty()) {
    const std::string_view line = take_until(text, "\n");
    if (line.empty()) break;
    request.headers.emplace_back(line);
  }
  request.body = text;
  return request;
}

}  // namespace

void RequestText::set_header(std::string_view name, std::string_view value) {
  const std::string start = std::string(name) + ": ";
  std::erase_if(headers, [&](const std::string& line) { return line.starts_with(start); });
  if (!value.empty()) headers.push_back(start + std::string(value));
}

std::string RequestText::header(std::string_view name) const {
  const std::string start = std::string(name) + ": ";
  for (const std::string& line : headers)
    if (line.starts_with(start)) return line.substr(start.size());
  return "";
}

std::vector<RequestText> split_requests(std::string_view text, size_t count_max) {
  std::vector<RequestText> requests;
  while (!text.empty() && requests.size() < count_max)
    requests.push_back(read_request(take_until(text, kBetween)));
  return requests;
}

std::string join_requests(const std::vector<RequestText>& requests) {
  std::string text;
  for (const RequestText& request : requests) {
    if (!text.empty()) text += kBetween;
    text += request.method + " " + request.target + "\n";
    for (const std::string& line : request.headers) text += line + "\n";
    text += "\n" + request.body;
  }
  return text;
}

}  // namespace lockstep::fuzz
