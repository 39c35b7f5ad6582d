#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace lockstep::train {

// An open file. Move-only through its pointer; one thread at a time.
class OpenFile {
 public:
  virtual ~OpenFile() = default;

  virtual Result<uint64_t> size() = 0;
  // Reads all of these bytes. kCorrupt if the file ends before.
  virtual Status read_at(uint64_t offset, std::span<char> to) = 0;
  // Appends all of these bytes.
  virtual Status write(std::span<const char> from) = 0;
  // Makes the bytes durable: fsync(2).
  virtual Status sync() = 0;
  // Makes later reads fetch synced bytes from where they are stored, if the system can.
  virtual void forget_cached() = 0;
};

// The system calls that storage makes: its only way to the operating system, so that tests can fail
// each of them and lose what was not synced. Names become durable with sync_folder() of the folder
// that has them.
//
// Errors blame storage and begin with `[storage] CALL of PATH`. Codes:
// - kNotFound: a part of the path does not exist, or is not a folder
// - kConflict: the name is taken
// - kUnavailable: all other errors of the operating system. Another try may succeed.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // A new file. kConflict if the name is taken.
  virtual Result<std::unique_ptr<OpenFile>> create(const std::string& path) = 0;
  // A file, for reading. kNotFound also for a folder.
  virtual Result<std::unique_ptr<OpenFile>> open(const std::string& path) = 0;
  // The names in a folder, in any order.
  virtual Result<std::vector<std::string>> list(const std::string& folder) = 0;
  // kConflict if the name is taken.
  virtual Status make_folder(const std::string& path) = 0;
  // Gives a folder another name, atomically. kConflict if that is a folder with something in it, or
  // a file.
  virtual Status rename_folder(const std::string& from, const std::string& to) = 0;
  virtual Status remove_file(const std::string& path) = 0;
  // Only an empty one.
  virtual Status remove_folder(const std::string& path) = 0;
  virtual Status sync_folder(const std::string& path) = 0;
};

// The operating system's. Stateless; lives as long as the process.
FileSystem& real_file_system();

}  // namespace lockstep::train
