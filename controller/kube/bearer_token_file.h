#pragma once

#include <string>

#include "common/base/clock.h"

namespace lockstep::kube {

// A bearer token in a file that somebody rotates. The file is read again once a minute, and when
// the server refuses the token. While it can't be read, or is empty, the last token stays. Source:
// client-go, transport/token_source.go.
class BearerTokenFile {
 public:
  BearerTokenFile(std::string file, const Clock& clock) : file_(std::move(file)), clock_(clock) {}

  const std::string& token();
  // The server refused the token. Returns whether there is another one now.
  bool refresh();

 private:
  void read();

  std::string file_;  // empty: no token
  const Clock& clock_;
  std::string token_;
  TimePoint read_at_{};
};

// Reads a file of at most `bytes_max`, without white space at its end.
Result<std::string> read_small_file(const std::string& path, size_t bytes_max = 1u << 20);

}  // namespace lockstep::kube
