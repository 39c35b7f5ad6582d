#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/result.h"

namespace lockstep::train {

// A file descriptor and its owner. Move-only. Errors, here and below, blame storage.
class File {
 public:
  // open(2) with O_CLOEXEC; a new file gets mode 0644. Errors name the path.
  static Result<File> open(const std::string& path, int flags);
  // Takes over an open descriptor.
  static File adopt(int fd, std::string path) { return File(fd, std::move(path)); }
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  const std::string& path() const { return path_; }
  Result<uint64_t> size() const;
  // All of the bytes, or an error: kCorrupt where the file ends before.
  Status read_at(uint64_t offset, void* to, size_t bytes) const;
  // At the descriptor's place, all of them.
  Status write(const void* from, size_t bytes);
  Status truncate(uint64_t bytes);
  Status sync();
  // Drops synced bytes from the page cache, so that the next reader gets them from the disk.
  void forget_cached();

 private:
  File(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  int fd_ = -1;
  std::string path_;
};

// Whether it names a file within a folder: of 1 to 200 bytes, without '/' or a zero byte, not
// beginning with '.'.
bool is_plain_name(std::string_view name);

// fsync of a folder: its names are durable.
Status sync_folder(const std::string& path);

// A small file, whole; kCorrupt where it has more than `bytes_max` bytes.
Result<std::string> read_small_file(const std::string& path, size_t bytes_max);
// Writes and syncs; the file is replaced in place.
Status write_file_synced(const std::string& path, std::string_view text);

}  // namespace lockstep::train
