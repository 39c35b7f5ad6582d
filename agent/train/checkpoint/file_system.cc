#include "agent/train/checkpoint/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "agent/train/checkpoint/file_io.h"

namespace lockstep::train {
namespace {

Error failure(std::string_view call, const std::string& path) {
  const int number = errno;
  Error error =
      errno_error("[storage] " + std::string(call) + " of " + path, number, Blame::kStorage);
  if (number == ENOTDIR || number == EISDIR || number == ELOOP) error.code = Code::kNotFound;
  if (number == EEXIST || number == ENOTEMPTY) error.code = Code::kConflict;
  return error;
}

Status done(int result, std::string_view call, const std::string& path) {
  return result == 0 ? Status() : failure(call, path);
}

class RealFile final : public OpenFile {
 public:
  explicit RealFile(File file) : file_(std::move(file)) {}

  Result<uint64_t> size() override { return file_.size(); }
  Status read_at(uint64_t offset, std::span<char> to) override {
    return file_.read_at(offset, to.data(), to.size());
  }
  Status write(std::span<const char> from) override {
    return file_.write(from.data(), from.size());
  }
  Status sync() override { return file_.sync(); }
  void forget_cached() override { file_.forget_cached(); }

 private:
  File file_;
};

class RealFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<OpenFile>> create(const std::string& path) override {
    return opened(path, O_RDWR | O_CREAT | O_EXCL);
  }
  Result<std::unique_ptr<OpenFile>> open(const std::string& path) override {
    struct stat found {};
    if (stat(path.c_str(), &found) != 0) return failure("stat", path);
    if (S_ISREG(found.st_mode)) return opened(path, O_RDONLY);
    return not_found("[storage] open of " + path + ": expected a file", Blame::kStorage);
  }

  Result<std::vector<std::string>> list(const std::string& folder) override {
    DIR* open_folder = opendir(folder.c_str());
    if (open_folder == nullptr) return failure("opendir", folder);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = readdir(open_folder)) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
    }
    const Status read = done(errno == 0 ? 0 : -1, "readdir", folder);
    closedir(open_folder);
    TRY(read);
    return names;
  }

  Status make_folder(const std::string& path) override {
    return done(mkdir(path.c_str(), 0755), "mkdir", path);
  }
  // rename(2) replaces an empty folder, but not one with files. NFS lacks RENAME_NOREPLACE.
  Status rename_folder(const std::string& from, const std::string& to) override {
    Status renamed = done(std::rename(from.c_str(), to.c_str()), "rename to " + to, from);
    if (renamed.ok() || renamed.error().code != Code::kNotFound) return renamed;
    struct stat found {};  // a folder does not replace a file, nor a file a folder
    if (stat(from.c_str(), &found) != 0 || stat(to.c_str(), &found) != 0) return renamed;
    return conflict(renamed.error().message, Blame::kStorage);
  }
  Status remove_file(const std::string& path) override {
    return done(unlink(path.c_str()), "unlink", path);
  }
  Status remove_folder(const std::string& path) override {
    return done(rmdir(path.c_str()), "rmdir", path);
  }
  Status sync_folder(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return failure("open", path);
    return File::adopt(fd, path).sync();
  }

 private:
  static Result<std::unique_ptr<OpenFile>> opened(const std::string& path, int flags) {
    const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
    if (fd < 0) return failure("open", path);
    return std::unique_ptr<OpenFile>(std::make_unique<RealFile>(File::adopt(fd, path)));
  }
};

}  // namespace

FileSystem& real_file_system() {
  static RealFileSystem system;
  return system;
}

}  // namespace lockstep::train
