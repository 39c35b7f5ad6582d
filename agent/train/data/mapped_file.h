#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "common/base/result.h"

namespace lockstep::train {

// The bytes of a regular file, mapped into memory: nothing is read before it is used. A file that
// shrinks while it is mapped ends the process with SIGBUS, as mmap(2) has it.
class MappedFile {
 public:
  // Errors begin with "[data] " and the path, and blame the data.
  static Result<std::shared_ptr<const MappedFile>> open(const std::string& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  MappedFile(std::string path, std::span<const std::byte> bytes)
      : path_(std::move(path)), bytes_(bytes) {}

  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace lockstep::train
