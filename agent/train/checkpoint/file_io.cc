#include "agent/train/checkpoint/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace lockstep::train {
namespace {

Error failure(const std::string& what, int error_number) {
  return errno_error("[storage] " + what, error_number, Blame::kStorage);
}

}  // namespace

Result<File> File::open(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
  if (fd < 0) return failure("open of " + path, errno);
  return File(fd, path);
}

File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

File::~File() {
  if (fd_ >= 0) close(fd_);
}

Result<uint64_t> File::size() const {
  struct stat status {};
  if (fstat(fd_, &status) != 0) return failure("stat of " + path_, errno);
  return static_cast<uint64_t>(status.st_size);
}

Status File::read_at(uint64_t offset, void* to, size_t bytes) const {
  char* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = pread(fd_, at, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failure("read of " + path_, errno);
    if (got == 0) return corrupt("[storage] " + path_ + " ends early", Blame::kStorage);
    at += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
  return {};
}

Status File::write(const void* from, size_t bytes) {
  const char* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t done = ::write(fd_, at, bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return failure("write of " + path_, errno);
    at += done;
    bytes -= static_cast<size_t>(done);
  }
  return {};
}

Status File::truncate(uint64_t bytes) {
  if (ftruncate(fd_, static_cast<off_t>(bytes)) != 0) {
    return failure("truncation of " + path_, errno);
  }
  return {};
}

Status File::sync() {
  if (fsync(fd_) != 0) return failure("fsync of " + path_, errno);
  return {};
}

void File::forget_cached() {
  (void)posix_fadvise(fd_, 0, 0,
                      POSIX_FADV_DONTNEED);  // advice: there is nothing to do if it fails
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 200 && name.front() != '.' &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

Status sync_folder(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return failure("open of " + path, errno);
  const File folder = File::adopt(fd, path);
  // Some network file systems cannot sync a folder: its names are durable when they are made.
  if (fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP) return {};
  return failure("fsync of " + path, errno);
}

Result<std::string> read_small_file(const std::string& path, size_t bytes_max) {
  TRY_ASSIGN(const File file, File::open(path, O_RDONLY));
  TRY_ASSIGN(const uint64_t bytes, file.size());
  if (bytes > bytes_max) {
    return corrupt("[storage] " + path + " has " + std::to_string(bytes) + " bytes, at most " +
                       std::to_string(bytes_max) + " are read",
                   Blame::kStorage);
  }
  std::string text(bytes, '\0');
  TRY(file.read_at(0, text.data(), text.size()));
  return text;
}

Status write_file_synced(const std::string& path, std::string_view text) {
  TRY_ASSIGN(File file, File::open(path, O_WRONLY | O_CREAT | O_TRUNC));
  TRY(file.write(text.data(), text.size()));
  return file.sync();
}

}  // namespace lockstep::train
