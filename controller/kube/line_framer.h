#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::kube {

// Splits a stream of bytes, however it arrives in pieces, into lines without their ends (\n or
// \r\n). Skips empty lines.
class LineFramer {
 public:
  explicit LineFramer(size_t line_bytes_max) : line_bytes_max_(line_bytes_max) {}

  // Appends the lines that `bytes` completes. Returns false if a line is longer than allowed;
  // nothing after it can be trusted.
  bool feed(std::string_view bytes, std::vector<std::string>& lines);
  // The incomplete last line.
  const std::string& rest() const { return rest_; }

 private:
  const size_t line_bytes_max_;
  std::string rest_;
};

}  // namespace lockstep::kube
