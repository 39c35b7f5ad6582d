#include "controller/kube/bearer_token_file.h"

#include <fstream>
#include <utility>

#include "common/base/log.h"

namespace lockstep::kube {

Result<std::string> read_small_file(const std::string& path, size_t bytes_max) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return not_found("[file] can't open " + path);
  std::string text(bytes_max + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return unavailable("[file] can't read " + path);
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > bytes_max) {
    return invalid("[file] " + path + " is larger than " + std::to_string(bytes_max) + " bytes");
  }
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  return text;
}

void BearerTokenFile::read() {
  read_at_ = clock_.now();
  Result<std::string> text = read_small_file(file_);
  if (text.ok() && !text->empty()) {
    token_ = std::move(text).value();
  } else {
    log_warning("could not read a token from the token file", {{"file", file_}});
  }
}

const std::string& BearerTokenFile::token() {
  const bool is_old = clock_.now() - read_at_ >= std::chrono::minutes(1);
  if (!file_.empty() && (token_.empty() || is_old)) read();
  return token_;
}

bool BearerTokenFile::refresh() {
  if (file_.empty()) return false;
  const std::string before = token_;
  read();
  return token_ != before;
}

}  // namespace lockstep::kube
