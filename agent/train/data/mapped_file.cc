#include "agent/train/data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace lockstep::train {
namespace {

Error failed(const std::string& what, int error) {
  return errno_error("[data] " + what, error, Blame::kData);
}

Result<std::span<const std::byte>> map_open_file(int fd, const std::string& path) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return failed(path, errno);
  if (!S_ISREG(status.st_mode)) {
    return invalid("[data] " + path + ": expected a regular file", Blame::kData);
  }
  const auto bytes = static_cast<size_t>(status.st_size);
  if (bytes == 0) return std::span<const std::byte>();
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return failed(path + ": mmap", errno);
  return std::span(static_cast<const std::byte*>(data), bytes);
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: opening a named pipe must not wait for a writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return failed(path, errno);
  const Result<std::span<const std::byte>> bytes = map_open_file(fd, path);
  close(fd);
  if (!bytes.ok()) return bytes.error();
  return std::shared_ptr<const MappedFile>(new MappedFile(path, *bytes));
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace lockstep::train
