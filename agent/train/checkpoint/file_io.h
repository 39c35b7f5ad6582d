#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/base/sha256.h"

namespace lockstep::train {

// A file descriptor and its owner. Move-only. Errors, here and below, blame storage.
class File {
 public:
  // open(2) with O_CLOEXEC; a new file gets mode 0644. Errors name the path.
  static Result<File> open(const std::string& path, int flags);
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

struct FileDigest {
  uint64_t bytes = 0;
  Digest sha256{};

  bool operator==(const FileDigest&) const = default;
};
Result<FileDigest> digest_file(const std::string& path);

// A small file, whole; kCorrupt where it has more than `bytes_max` bytes.
Result<std::string> read_small_file(const std::string& path, size_t bytes_max);
// Writes and syncs; the file is replaced in place.
Status write_file_synced(const std::string& path, std::string_view text);

}  // namespace lockstep::train
