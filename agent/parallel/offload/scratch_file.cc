#include "agent/parallel/offload/scratch_file.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <optional>
#include <utility>

#include "kernels/device/device_errors.h"

namespace lockstep::parallel {
namespace {

std::string folder_of(const ScratchOptions& options) {
  if (!options.folder.empty()) return options.folder;
  const char* temporary = std::getenv("TMPDIR");
  return temporary == nullptr || *temporary == '\0' ? "/tmp" : temporary;
}

std::string text_of(int error_number) {
  return errno_error("", error_number).message;
}

// File systems without O_TMPFILE: the name exists for the moment between two calls.
int open_unlinked(const std::string& folder) {
  std::string path = folder + "/lockstep-offload-XXXXXX";
  const int fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd >= 0) unlink(path.c_str());
  return fd;
}

Error open_failure(const std::string& folder, int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
    case EACCES:
    case EPERM:
    case EROFS:
      return invalid("[offload] expected a folder that takes a scratch file, got " + folder +
                         text_of(error_number) + "; name one that this process can write to",
                     Blame::kConfig);
    default:
      return unavailable("[offload] a scratch file in " + folder + text_of(error_number));
  }
}

// None if the file system does not say.
std::optional<uint64_t> free_bytes_of(const std::string& folder) {
  struct statvfs status {};
  if (statvfs(folder.c_str(), &status) != 0 || status.f_blocks == 0) return std::nullopt;
  return uint64_t{status.f_bavail} * status.f_frsize;
}

Error reserve_failure(const std::string& folder, const ScratchOptions& options, int error_number,
                      std::optional<uint64_t> free_bytes) {
  std::string message = "[offload] " + kernels::bytes_text(static_cast<uint64_t>(options.bytes)) +
                        " (" + std::to_string(options.bytes) + " bytes) for " + options.by +
                        " in a scratch file in " + folder + text_of(error_number);
  if (free_bytes) {
    message += "; " + kernels::bytes_text(*free_bytes) + " (" + std::to_string(*free_bytes) +
               " bytes) are free";
  }
  return unavailable(message + ". Make room there or name another folder");
}

}  // namespace

ScratchCalls ScratchCalls::of_system() {
  return {.open_unnamed =
              [](const char* folder) {
                return open(folder, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
              },
          .reserve = [](int fd, int64_t bytes) { return posix_fallocate(fd, 0, bytes); }};
}

Result<ScratchFile> ScratchFile::create(const ScratchOptions& options, const ScratchCalls& calls) {
  CHECK(options.bytes > 0);
  const std::string folder = folder_of(options);
  int fd = calls.open_unnamed(folder.c_str());
  // As open(2) says, EISDIR comes from kernels and EOPNOTSUPP from file systems without O_TMPFILE.
  if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) fd = open_unlinked(folder);
  if (fd < 0) return open_failure(folder, errno);
  ScratchFile file(fd);
  const std::optional<uint64_t> free_bytes = free_bytes_of(folder);
  // Others would find the file system full while a reservation that cannot succeed goes on.
  const bool is_full = free_bytes && *free_bytes < static_cast<uint64_t>(options.bytes);
  int error_number = is_full ? ENOSPC : EINTR;
  while (error_number == EINTR) error_number = calls.reserve(fd, options.bytes);
  if (error_number != 0) return reserve_failure(folder, options, error_number, free_bytes);
  return file;
}

ScratchFile::ScratchFile(ScratchFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

ScratchFile& ScratchFile::operator=(ScratchFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

ScratchFile::~ScratchFile() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace lockstep::parallel
