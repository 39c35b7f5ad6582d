#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::fuzz {

// One request in text form:
//   PATCH /api/v1/namespaces/default/pods/a?fieldManager=m
//   Content-Type: application/merge-patch+json
//
//   {"metadata": {"labels": {"a": "b"}}}
struct RequestText {
  std::string method;
  std::string target;
  std::vector<std::string> headers;  // "Name: value"
  std::string body;

  // Sets the header, or removes it if `value` is empty.
  void set_header(std::string_view name, std::string_view value);
  std::string header(std::string_view name) const;
};

// Splits a sequence of requests, separated by lines `###` as in editors' .http files. Any text is
// valid: missing parts are empty. Reads at most `count_max` requests.
std::vector<RequestText> split_requests(std::string_view text, size_t count_max);
std::string join_requests(const std::vector<RequestText>& requests);

}  // namespace lockstep::fuzz
