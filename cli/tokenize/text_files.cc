#include "cli/tokenize/text_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <numeric>
#include <system_error>
#include <utility>

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

// Calls `read_some`, which works like read(2), until `to` is full or it returns 0.
Result<size_t> read_all(
    const std::string& path, std::span<char> to,
    const std::function<ssize_t(char* to, size_t bytes, size_t done)>& read_some) {
  size_t done = 0;
  while (done < to.size()) {
    const ssize_t now = read_some(to.data() + done, to.size() - done, done);
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) return errno_error("[tokenize] " + path, errno);
    if (now == 0) break;
    done += static_cast<size_t>(now);
  }
  return done;
}

Result<std::vector<TextFile>> files_in(const std::string& folder) {
  std::vector<TextFile> files;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) {
      files.push_back({it->path().string(), it->file_size(ignored)});
    }
  }
  if (error) return errno_error("[tokenize] " + folder, error.value());
  if (files.empty()) return invalid("[tokenize] " + folder + ": no regular file in this folder");
  std::ranges::sort(files, {}, &TextFile::path);
  return files;
}

}  // namespace

Result<std::vector<TextFile>> find_text_files(std::span<const std::string> paths) {
  std::vector<TextFile> files;
  for (const std::string& path : paths) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (status.type() == fs::file_type::not_found) {
      return not_found("[tokenize] " + path + ": no such file or folder");
    }
    if (error) return errno_error("[tokenize] " + path, error.value());
    if (fs::is_directory(status)) {
      TRY_ASSIGN(const std::vector<TextFile> found, files_in(path));
      files.insert(files.end(), found.begin(), found.end());
    } else {
      files.push_back({path, fs::is_regular_file(status) ? fs::file_size(path, error) : 0});
    }
  }
  return files;
}

uint64_t bytes_of(std::span<const TextFile> files) {
  return std::accumulate(files.begin(), files.end(), uint64_t{0},
                         [](uint64_t sum, const TextFile& file) { return sum + file.bytes; });
}

Result<InputFile> InputFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno_error("[tokenize] " + path, errno);
  return InputFile(fd, path);
}

InputFile::InputFile(InputFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

InputFile::~InputFile() {
  if (fd_ >= 0) close(fd_);
}

Result<size_t> InputFile::read(std::span<char> to) {
  return read_all(path_, to,
                  [this](char* at, size_t bytes, size_t) { return ::read(fd_, at, bytes); });
}

Result<size_t> InputFile::read_at(uint64_t offset, std::span<char> to) {
  return read_all(path_, to, [&](char* at, size_t bytes, size_t done) {
    return ::pread(fd_, at, bytes, static_cast<off_t>(offset + done));
  });
}

Result<std::string> read_whole_file(const std::string& path, size_t bytes_max) {
  TRY_ASSIGN(InputFile file, InputFile::open(path));
  std::string text;
  constexpr size_t kAtOnce = size_t{1} << 20;
  for (;;) {
    const size_t before = text.size();
    text.resize(before + kAtOnce);
    TRY_ASSIGN(const size_t now, file.read(std::span(text).subspan(before)));
    text.resize(before + now);
    if (text.size() > bytes_max) {
      return invalid("[tokenize] " + path + ": more than " + std::to_string(bytes_max) + " bytes");
    }
    if (now < kAtOnce) return text;
  }
}

}  // namespace lockstep::cli
