#include "controller/kube/line_framer.h"

namespace lockstep::kube {

bool LineFramer::feed(std::string_view bytes, std::vector<std::string>& lines) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    if (rest_.size() + piece.size() > line_bytes_max_) return false;
    rest_ += piece;
    if (end == std::string_view::npos) return true;
    bytes.remove_prefix(end + 1);
    if (!rest_.empty() && rest_.back() == '\r') rest_.pop_back();
    if (!rest_.empty()) lines.push_back(std::move(rest_));
    rest_.clear();
  }
  return true;
}

}  // namespace lockstep::kube
