#include "agent/node/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

namespace lockstep::node {
namespace {

Status write_all(const std::string& path, int flags, std::string_view text) {
  const int fd = open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC | flags, 0600);
  if (fd < 0) return errno_error("[file] " + path, errno);
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      close(fd);
      return errno_error("[file] " + path, error);
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
  close(fd);
  return {};
}

}  // namespace

Result<std::string> read_small_file(const std::string& path, size_t bytes_max) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno_error("[file] " + path, errno);
  std::string text(bytes_max + 1, '\0');
  size_t bytes = 0;
  ssize_t got = 0;
  while (bytes < text.size() && (got = read(fd, text.data() + bytes, text.size() - bytes)) > 0) {
    bytes += static_cast<size_t>(got);
  }
  const int error = errno;
  close(fd);
  if (got < 0) return errno_error("[file] " + path, error);
  if (bytes > bytes_max) {
    return invalid("[file] " + path + ": expected at most " + std::to_string(bytes_max) +
                   " bytes, got more");
  }
  text.resize(bytes);
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  return text;
}

Status write_file_atomically(const std::string& path, std::string_view text) {
  const std::string temporary = path + ".new";
  TRY(write_all(temporary, O_CREAT, text));
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    return errno_error("[file] rename to " + path, errno);
  }
  return {};
}

Status make_folders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return unavailable("[file] " + path + ": " + error.message());
  return {};
}

Status overwrite_file(const std::string& path, std::string_view text, bool create) {
  return write_all(path, create ? O_CREAT : 0, text);
}

}  // namespace lockstep::node
