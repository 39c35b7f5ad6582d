#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "agent/train/checkpoint/manifest.h"
#include "agent/train/checkpoint/storage.h"
#include "common/base/result.h"

namespace lockstep::train {

// Writes a new object through a buffer of one chunk, and takes each chunk's checksum on the way.
class ChunkedWriter {
 public:
  // Once `stop` is requested, chunks are refused: kUnavailable.
  explicit ChunkedWriter(std::unique_ptr<ObjectWriter> object, std::stop_token stop = {})
      : object_(std::move(object)), stop_(std::move(stop)) {
    buffer_.reserve(kChunkBytes);
  }
  Status write(std::span<const char> bytes);
  // Makes the object durable. Returns it under that name.
  Result<ManifestFile> finish(std::string name);

 private:
  Status flush();

  std::unique_ptr<ObjectWriter> object_;
  std::stop_token stop_;
  std::vector<char> buffer_;
  ManifestFile file_;
};

// Reads an object of a checkpoint and verifies every chunk that it touches, one at a time in
// memory. Errors name the object; those of bytes that are not the ones that were written are
// kCorrupt. One thread.
class ChunkedReader {
 public:
  // kCorrupt if the object is missing or has another size.
  static Result<ChunkedReader> open(Storage& storage, const std::string& folder, ManifestFile file);

  uint64_t bytes() const { return file_.bytes; }
  const std::string& path() const { return path_; }
  // Fills all of `to`, which is within the object.
  Status read(uint64_t offset, std::span<char> to);
  // Reads all bytes, and for format 1 compares the digest of the whole. kUnavailable once `stop` is
  // requested.
  Status verify(const std::stop_token& stop = {});
  // Frees the buffer of the last chunk.
  void free_buffer();

 private:
  ChunkedReader(std::unique_ptr<ObjectReader> object, ManifestFile file, std::string path)
      : object_(std::move(object)), file_(std::move(file)), path_(std::move(path)) {}
  Status load(uint64_t chunk);
  Status verify_digest();

  std::unique_ptr<ObjectReader> object_;
  ManifestFile file_;
  std::string path_;
  std::vector<char> buffer_;
  std::optional<uint64_t> loaded_;  // the chunk in the buffer
};

}  // namespace lockstep::train
