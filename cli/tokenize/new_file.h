#pragma once

#include <cstddef>
#include <string>

#include "common/base/result.h"

namespace lockstep::cli {

// A file that is written under another name, in the same folder, until it is whole. It replaces no
// file. Move-only. Errors name the path.
class NewFile {
 public:
  // kConflict if there is such a file.
  static Result<NewFile> create(const std::string& path);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  // Removes what was written, unless it was published.
  ~NewFile();

  const std::string& path() const { return path_; }
  Status write(const void* from, size_t bytes);
  // Syncs the file and gives it its name; kConflict if there is a file of that name by now.
  Status publish();
  // Removes the published file.
  void withdraw();

 private:
  NewFile(int fd, std::string path, std::string hidden)
      : fd_(fd), path_(std::move(path)), hidden_(std::move(hidden)) {}

  int fd_ = -1;
  std::string path_;
  std::string hidden_;  // its name until it is published; empty afterwards
};

}  // namespace lockstep::cli
