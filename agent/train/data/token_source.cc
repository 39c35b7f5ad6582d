#include "agent/train/data/token_source.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace lockstep::train {

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

Status TokenSource::add_file(const std::string& path) {
  TRY_ASSIGN(std::shared_ptr<const MappedFile> file, MappedFile::open(path));
  const size_t bytes = file->bytes().size();
  const auto width = static_cast<size_t>(options_.width);
  if (bytes % width != 0) {
    return invalid("[data] " + path + ": " + std::to_string(bytes) +
                       " bytes is not a whole number of tokens of " + std::to_string(width) +
                       " bytes",
                   Blame::kData);
  }
  if (bytes == 0) return {};
  const auto tokens = static_cast<int64_t>(bytes / width);
  parts_.push_back({.file = std::move(file), .first = count_, .count = tokens});
  count_ += tokens;
  return {};
}

Result<TokenSource> TokenSource::open(const TokenSourceOptions& options) {
  TRY_ASSIGN(const std::vector<std::string> files, files_of(options.path));
  TokenSource source(options);
  for (const std::string& file : files) TRY(source.add_file(file));
  return source;
}

Status TokenSource::read_part(const Part& part, int64_t from, std::span<int32_t> out) const {
  const auto width = static_cast<int64_t>(options_.width);
  const std::byte* bytes = part.file->bytes().data() + from * width;
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
  return invalid("[data] " + part.file->path() + ": the token at byte " +
                     std::to_string((from + bad) * width) +
                     " is not below the model's vocabulary of " + std::to_string(vocabulary),
                 Blame::kData);
}

Status TokenSource::read(int64_t begin, std::span<int32_t> out) const {
  CHECK(begin >= 0 && begin + static_cast<int64_t>(out.size()) <= count_);
  if (out.empty()) return {};
  auto next = std::upper_bound(parts_.begin(), parts_.end(), begin,
                               [](int64_t at, const Part& part) { return at < part.first; }) -
              1;
  while (!out.empty()) {
    const Part& part = *next++;
    const int64_t from = begin - part.first;
    const auto now = std::min(out.size(), static_cast<size_t>(part.count - from));
    TRY(read_part(part, from, out.first(now)));
    begin += static_cast<int64_t>(now);
    out = out.subspan(now);
  }
  return {};
}

}  // namespace lockstep::train
