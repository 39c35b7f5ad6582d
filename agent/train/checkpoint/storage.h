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

// A new object that is being written. An object that is not finished is gone, or is never seen
// again.
class ObjectWriter {
 public:
  virtual ~ObjectWriter() = default;
  virtual Status write(std::span<const char> bytes) = 0;
  // The object is durable and complete.
  virtual Status finish() = 0;
};

class ObjectReader {
 public:
  virtual ~ObjectReader() = default;
  virtual Result<uint64_t> size() = 0;
  // Reads all of these bytes. kCorrupt if the object ends before.
  virtual Status read_at(uint64_t offset, std::span<char> to) = 0;
};

// Where checkpoints are: objects with names, in folders with names. Several processes and
// threads use it at the same time; a reader or a writer of an object is for one thread.
//
// FolderStorage does it with a file system. An object store does it with a conditional put
// ("if none match"): put_new() is one; a folder is the objects whose keys begin with its name;
// move_folder() is a put_new() of an object with the new name that contains the key prefix of the
// folder's objects (list(), open() and remove_folder() follow it), then the removal of the old one.
//
// Errors blame storage. Codes: kNotFound, kConflict (put_new(), move_folder()), kCorrupt (an object
// that ends early), and kUnavailable for everything that another try may mend.
class Storage {
 public:
  virtual ~Storage() = default;

  // For messages.
  virtual std::string describe(std::string_view name) const = 0;
  // The names directly in a folder; "" is the storage itself. kNotFound if there is none.
  virtual Result<std::vector<std::string>> list(const std::string& folder) = 0;
  // A new object `FOLDER/NAME`, whose folder exists.
  virtual Result<std::unique_ptr<ObjectWriter>> create(const std::string& name) = 0;
  virtual Result<std::unique_ptr<ObjectReader>> open(const std::string& name) = 0;
  // Writes a small object that must not exist. It is durable at return. If two processes put the
  // same name, one of them gets kConflict. A reader may see it before it is complete.
  virtual Status put_new(const std::string& name, std::string_view bytes) = 0;
  // Makes a folder in one that is there, durably; no error if there is one. kNotFound if the
  // storage is gone: it may have been a volume.
  virtual Status make_folder(const std::string& folder) = 0;
  // Gives a folder whose objects are finished another name, all at once and durably. kConflict if
  // there is one of that name with something in it.
  virtual Status move_folder(const std::string& from, const std::string& to) = 0;
  // Removes an object, or a folder with its objects. No error if it is gone.
  virtual Status remove_object(const std::string& name) = 0;
  virtual Status remove_folder(const std::string& folder) = 0;
};

// Reads a small object as a whole; kCorrupt if it has more than `bytes_max` bytes.
Result<std::string> read_object(Storage& storage, const std::string& name, size_t bytes_max);

}  // namespace lockstep::train
