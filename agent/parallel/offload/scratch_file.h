#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.h"

namespace lockstep::parallel {

// The calls of the system that make a scratch file. Each returns as the call of the system does.
struct ScratchCalls {
  // open() of a folder with O_TMPFILE: a descriptor, or -1 and errno.
  int (*open_unnamed)(const char* folder) = nullptr;
  // posix_fallocate() from offset 0: 0, or the error number.
  int (*reserve)(int fd, int64_t bytes) = nullptr;

  static ScratchCalls of_system();
};

struct ScratchOptions {
  std::string folder;  // empty: $TMPDIR, and without it /tmp. On a tmpfs, the file takes memory
  std::string by;      // the purpose, for errors: "first moments"
  int64_t bytes = 0;
};

// A file without a name: nobody else sees it, and it is gone when the process ends, even after
// SIGKILL. Its space is reserved, so that no later write finds the file system full. Zero at first.
// Move-only, owner.
class ScratchFile {
 public:
  // kInvalid, which blames the configuration, unless the folder exists and takes files.
  // kUnavailable if there is not enough space: names the folder, the bytes needed and those free.
  static Result<ScratchFile> create(const ScratchOptions& options,
                                    const ScratchCalls& calls = ScratchCalls::of_system());
  ScratchFile(ScratchFile&& other) noexcept;
  ScratchFile& operator=(ScratchFile&& other) noexcept;
  ~ScratchFile();

  int descriptor() const { return fd_; }

 private:
  explicit ScratchFile(int fd) : fd_(fd) {}

  int fd_ = -1;
};

}  // namespace lockstep::parallel
