#include "agent/train/checkpoint/chunked_file.h"

#include <algorithm>
#include <utility>

#include "common/base/crc32c.h"

namespace lockstep::train {
namespace {

Error damaged(const std::string& path, const std::string& what) {
  return corrupt("[checkpoint] " + path + ": " + what, Blame::kStorage);
}

Error stopped() {
  return unavailable("[checkpoint] the save was given up, because this rank ends", Blame::kStorage);
}

}  // namespace

Status ChunkedWriter::write(std::span<const char> bytes) {
  while (!bytes.empty()) {
    const size_t now = std::min(bytes.size(), kChunkBytes - buffer_.size());
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(now));
    bytes = bytes.subspan(now);
    if (buffer_.size() == kChunkBytes) TRY(flush());
  }
  return {};
}

Status ChunkedWriter::flush() {
  if (stop_.stop_requested()) return stopped();
  file_.chunks.push_back(crc32c(buffer_.data(), buffer_.size()));
  file_.bytes += buffer_.size();
  TRY(object_->write(buffer_));
  buffer_.clear();
  return {};
}

Result<ManifestFile> ChunkedWriter::finish(std::string name) {
  if (!buffer_.empty()) TRY(flush());
  TRY(object_->finish());
  file_.name = std::move(name);
  return std::move(file_);
}

Result<ChunkedReader> ChunkedReader::open(Storage& storage, const std::string& folder,
                                          ManifestFile file) {
  const std::string name = folder + "/" + file.name;
  const std::string path = storage.describe(name);
  Result<std::unique_ptr<ObjectReader>> object = storage.open(name);
  if (!object.ok() && object.error().code == Code::kNotFound) {
    return damaged(path, "the manifest names it, but it is missing");
  }
  if (!object.ok()) return object.error();
  TRY_ASSIGN(const uint64_t bytes, (*object)->size());
  if (bytes != file.bytes) {
    return damaged(path, "it has " + std::to_string(bytes) + " bytes, the manifest says " +
                             std::to_string(file.bytes));
  }
  return ChunkedReader(std::move(*object), std::move(file), path);
}

Status ChunkedReader::load(uint64_t chunk) {
  if (loaded_ == chunk) return {};
  loaded_.reset();
  const uint64_t begin = chunk * kChunkBytes;
  buffer_.resize(std::min(kChunkBytes, file_.bytes - begin));
  TRY(object_->read_at(begin, buffer_));
  if (!file_.chunks.empty() && crc32c(buffer_.data(), buffer_.size()) != file_.chunks[chunk]) {
    return damaged(path_, "bytes " + std::to_string(begin) + " to " +
                              std::to_string(begin + buffer_.size()) +
                              " do not match their checksum");
  }
  loaded_ = chunk;
  return {};
}

Status ChunkedReader::read(uint64_t offset, std::span<char> to) {
  CHECK(offset <= file_.bytes && to.size() <= file_.bytes - offset);
  while (!to.empty()) {
    TRY(load(offset / kChunkBytes));
    const uint64_t at = offset % kChunkBytes;
    const size_t now = std::min<uint64_t>(to.size(), buffer_.size() - at);
    std::copy_n(buffer_.data() + at, now, to.data());
    to = to.subspan(now);
    offset += now;
  }
  return {};
}

Status ChunkedReader::verify_digest() {
  Sha256 sha;
  for (uint64_t at = 0; at < file_.bytes; at += kChunkBytes) {
    TRY(load(at / kChunkBytes));
    sha.update(buffer_.data(), buffer_.size());
  }
  if (sha.finish() == *file_.sha256) return {};
  return damaged(path_, "it does not match the checksum in the manifest");
}

Status ChunkedReader::verify(const std::stop_token& stop) {
  if (file_.sha256) return verify_digest();
  for (uint64_t chunk = 0; chunk < file_.chunks.size(); ++chunk) {
    if (stop.stop_requested()) return stopped();
    TRY(load(chunk));
  }
  return {};
}

void ChunkedReader::free_buffer() {
  loaded_.reset();
  std::vector<char>().swap(buffer_);
}

}  // namespace lockstep::train
