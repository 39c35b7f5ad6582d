#include "cli/tokenize/new_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

Error failed(const std::string& path, int error) {
  return errno_error("[tokenize] " + path, error);
}

Error exists(const std::string& path) {
  return conflict("[tokenize] " + path + " exists, and is never overwritten");
}

}  // namespace

Result<NewFile> NewFile::create(const std::string& path) {
  std::error_code error;
  if (fs::symlink_status(path, error).type() != fs::file_type::not_found) return exists(path);
  const fs::path final_path(path);
  const std::string hidden =
      (final_path.parent_path() /
       (".unfinished-" + final_path.filename().string() + "-" + std::to_string(getpid())))
          .string();
  const int fd = ::open(hidden.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return failed(path, errno);
  return NewFile(fd, path, hidden);
}

NewFile::NewFile(NewFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      hidden_(std::exchange(other.hidden_, "")) {}

NewFile::~NewFile() {
  if (fd_ >= 0) close(fd_);
  if (!hidden_.empty()) unlink(hidden_.c_str());
}

Status NewFile::write(const void* from, size_t bytes) {
  const char* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t now = ::write(fd_, at, bytes);
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) return failed(path_, errno);
    at += now;
    bytes -= static_cast<size_t>(now);
  }
  return {};
}

Status NewFile::publish() {
  if (fsync(fd_) != 0) return failed(path_, errno);
  const int renamed =
      renameat2(AT_FDCWD, hidden_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE);
  if (renamed == 0) {
    hidden_.clear();
    return {};
  }
  return errno == EEXIST ? exists(path_) : failed(path_, errno);
}

void NewFile::withdraw() {
  unlink(path_.c_str());
}

}  // namespace lockstep::cli
