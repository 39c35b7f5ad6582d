#include "local/node/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

namespace lockstep::local {
namespace {

Status write_with_mode(const std::string& file, std::string_view content, mode_t mode) {
  int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (fd < 0) return errno_error("[file] " + file, errno);
  while (!content.empty()) {
    ssize_t written = write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      Error error = errno_error("[file] writing " + file, errno);
      close(fd);
      return error;
    }
    content.remove_prefix(static_cast<size_t>(written));
  }
  if (close(fd) != 0) return errno_error("[file] closing " + file, errno);
  return {};
}

}  // namespace

Status write_file(const std::string& file, std::string_view content) {
  return write_with_mode(file, content, 0666);
}

Status write_private_file(const std::string& file, std::string_view content) {
  return write_with_mode(file, content, 0600);
}

Status make_private_folder(const std::string& folder) {
  std::string path;
  for (const std::filesystem::path& part : std::filesystem::path(folder)) {
    path = path.empty() ? part.string() : (std::filesystem::path(path) / part).string();
    if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) continue;
    return errno_error("[folder] " + path, errno);
  }
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error))
    return unavailable("[folder] " + folder + ": expected a folder, found something else");
  return {};
}

std::string end_of_file(const std::string& file, size_t bytes_max) {
  std::ifstream stream(file, std::ios::binary | std::ios::ate);
  if (!stream) return "";
  auto size = static_cast<size_t>(std::max<std::streamoff>(0, stream.tellg()));
  size_t bytes = std::min(size, bytes_max);
  std::string text(bytes, '\0');
  stream.seekg(static_cast<std::streamoff>(size - bytes));
  stream.read(text.data(), static_cast<std::streamsize>(bytes));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(0, stream.gcount())));
  return text;
}

}  // namespace lockstep::local
