#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Cuts a stream of bytes, however it was split, into lines without their ends (\n or \r\n). Empty
// lines are left out.
class LineFramer {
 public:
  explicit LineFramer(size_t line_bytes_max) : line_bytes_max_(line_bytes_max) {}

  // Appends the lines that `bytes` completes. False: a line is longer than allowed; nothing that
  // comes afterwards can be trusted.
  bool feed(std::string_view bytes, std::vector<std::string>& lines);
  // What no line end has followed yet.
  const std::string& rest() const { return rest_; }

 private:
  const size_t line_bytes_max_;
  std::string rest_;
};

}  // namespace lockstep
