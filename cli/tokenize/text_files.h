#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace lockstep::cli {

struct TextFile {
  std::string path;
  uint64_t bytes = 0;  // 0 for a pipe
};

// Finds the files of a text: a path names a file, or a folder, whose regular files count in the
// order of their names. kInvalid or kNotFound, with the path, for one that is neither and for a
// folder without files.
Result<std::vector<TextFile>> find_text_files(std::span<const std::string> paths);

uint64_t bytes_of(std::span<const TextFile> files);

// A file that is open for reading. Move-only. Errors name the path.
class InputFile {
 public:
  static Result<InputFile> open(const std::string& path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  // Reads what comes next until `to` is full or the file ends. Returns the number of bytes.
  Result<size_t> read(std::span<char> to);
  // The same from a place of a regular file.
  Result<size_t> read_at(uint64_t offset, std::span<char> to);

 private:
  InputFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  int fd_ = -1;
  std::string path_;
};

// Reads a whole file; kInvalid, with the path, if it has more than `bytes_max` bytes.
Result<std::string> read_whole_file(const std::string& path, size_t bytes_max);

}  // namespace lockstep::cli
