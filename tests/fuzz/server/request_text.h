#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// One request as a person writes it down:
//   PATCH /api/v1/namespaces/default/pods/a?fieldManager=m
//   Content-Type: application/merge-patch+json
//
//   {"metadata": {"labels": {"a": "b"}}}
struct RequestText {
  std::string method;
  std::string target;
  std::vector<std::string> headers;  // "Name: value"
  std::string body;

  // Sets the header, or removes it where `value` is empty.
  void set_header(std::string_view name, std::string_view value);
  std::string header(std::string_view name) const;
};

// A sequence of them, with a line `###` between two, as editors' .http files have it. Any text is
// one: what is missing is empty. No more than `count_max` are read.
std::vector<RequestText> split_requests(std::string_view text, size_t count_max);
std::string join_requests(const std::vector<RequestText>& requests);

}  // namespace lockstep
