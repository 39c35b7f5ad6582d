#include "agent/train/data/token_source.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace lockstep::train {

struct TokenSource::Mapping {
  Mapping(std::string file, void* data, size_t bytes, int64_t first, int64_t count)
      : file(std::move(file)), data(data), bytes(bytes), first(first), count(count) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { munmap(data, bytes); }

  std::string file;
  void* data;
  size_t bytes;
  int64_t first;  // index of its first token in the whole
  int64_t count;
};

Result<TokenWidth> token_width(const std::string& tokenizer) {
  if (tokenizer == "bytes") return TokenWidth::kByte;
  if (tokenizer == "u16") return TokenWidth::kU16;
  if (tokenizer == "u32") return TokenWidth::kU32;
  return invalid("[data] tokenizer \"" + tokenizer + "\": expected bytes, u16 or u32",
                 Blame::kConfig);
}

namespace {

Result<std::vector<std::string>> files_of(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    return not_found("[data] " + path + ": no such file or folder", Blame::kData);
  }
  if (error) return errno_error("[data] " + path, error.value(), Blame::kData);
  if (status.type() == fs::file_type::regular) return std::vector<std::string>{path};
  if (status.type() != fs::file_type::directory) {
    return invalid("[data] " + path + ": expected a regular file or a folder", Blame::kData);
  }
  std::vector<std::string> files;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) files.push_back(it->path().string());
  }
  if (error) return errno_error("[data] " + path, error.value(), Blame::kData);
  if (files.empty()) {
    return invalid("[data] " + path + ": no regular file in this folder", Blame::kData);
  }
  std::sort(files.begin(), files.end());
  return files;
}

template <class T>
int64_t widen(const std::byte* from, std::span<int32_t> out, uint32_t vocabulary) {
  for (size_t i = 0; i < out.size(); ++i) {
    T token;
    std::memcpy(&token, from + i * sizeof(T), sizeof(T));
    if (static_cast<uint32_t>(token) >= vocabulary) return static_cast<int64_t>(i);
    out[i] = static_cast<int32_t>(token);
  }
  return -1;
}

}  // namespace

Status TokenSource::add_file(const std::string& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno_error("[data] " + file, errno, Blame::kData);
  struct stat status {};
  if (fstat(fd, &status) != 0) {
    const int error = errno;
    close(fd);
    return errno_error("[data] " + file, error, Blame::kData);
  }
  const auto bytes = static_cast<size_t>(status.st_size);
  const auto width = static_cast<size_t>(options_.width);
  if (bytes % width != 0) {
    close(fd);
    return invalid("[data] " + file + ": " + std::to_string(bytes) +
                       " bytes is not a whole number of tokens of " + std::to_string(width) +
                       " bytes",
                   Blame::kData);
  }
  if (bytes == 0) {
    close(fd);
    return {};
  }
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  const int error = errno;
  close(fd);
  if (data == MAP_FAILED) return errno_error("[data] mmap of " + file, error, Blame::kData);
  const auto tokens = static_cast<int64_t>(bytes / width);
  files_.push_back(std::make_shared<const Mapping>(file, data, bytes, count_, tokens));
  count_ += tokens;
  return {};
}

Result<TokenSource> TokenSource::open(const TokenSourceOptions& options) {
  TRY_ASSIGN(const std::vector<std::string> files, files_of(options.path));
  TokenSource source(options);
  for (const std::string& file : files) TRY(source.add_file(file));
  return source;
}

Status TokenSource::read_part(const Mapping& file, int64_t from, std::span<int32_t> out) const {
  const auto width = static_cast<int64_t>(options_.width);
  const std::byte* bytes = static_cast<const std::byte*>(file.data) + from * width;
  const auto vocabulary = static_cast<uint32_t>(options_.vocabulary);
  int64_t bad = -1;
  switch (options_.width) {
    case TokenWidth::kByte:
      bad = widen<uint8_t>(bytes, out, vocabulary);
      break;
    case TokenWidth::kU16:
      bad = widen<uint16_t>(bytes, out, vocabulary);
      break;
    case TokenWidth::kU32:
      bad = widen<uint32_t>(bytes, out, vocabulary);
      break;
  }
  if (bad < 0) return {};
  return invalid("[data] " + file.file + ": the token at byte " +
                     std::to_string((from + bad) * width) +
                     " is not below the model's vocabulary of " + std::to_string(vocabulary),
                 Blame::kData);
}

Status TokenSource::read(int64_t begin, std::span<int32_t> out) const {
  CHECK(begin >= 0 && begin + static_cast<int64_t>(out.size()) <= count_);
  if (out.empty()) return {};
  auto file = std::upper_bound(files_.begin(), files_.end(), begin,
                               [](int64_t at, const auto& m) { return at < m->first; }) -
              1;
  while (!out.empty()) {
    const Mapping& mapping = **file++;
    const int64_t from = begin - mapping.first;
    const auto now = std::min(out.size(), static_cast<size_t>(mapping.count - from));
    TRY(read_part(mapping, from, out.first(now)));
    begin += static_cast<int64_t>(now);
    out = out.subspan(now);
  }
  return {};
}

}  // namespace lockstep::train
