#include "agent/train/checkpoint/folder_storage.h"

#include <utility>

namespace lockstep::train {
namespace {

std::string parent_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Success also if the status has this code.
Status ignoring(Code harmless, const Status& status) {
  return !status.ok() && status.error().code == harmless ? Status() : status;
}

class FileWriter final : public ObjectWriter {
 public:
  explicit FileWriter(std::unique_ptr<OpenFile> file) : file_(std::move(file)) {}
  Status write(std::span<const char> bytes) override { return file_->write(bytes); }
  // The name is durable once the folder is synced, which move_folder() does.
  Status finish() override {
    TRY(file_->sync());
    file_->forget_cached();
    return {};
  }

 private:
  std::unique_ptr<OpenFile> file_;
};

class FileReader final : public ObjectReader {
 public:
  explicit FileReader(std::unique_ptr<OpenFile> file) : file_(std::move(file)) {}
  Result<uint64_t> size() override { return file_->size(); }
  Status read_at(uint64_t offset, std::span<char> to) override {
    return file_->read_at(offset, to);
  }

 private:
  std::unique_ptr<OpenFile> file_;
};

}  // namespace

std::string FolderStorage::at(std::string_view name) const {
  return name.empty() ? path_ : path_ + "/" + std::string(name);
}

Status FolderStorage::make_path(const std::string& path) {
  Status made = files_.make_folder(path);
  if (!made.ok() && made.error().code == Code::kNotFound && parent_of(path) != path) {
    TRY(make_path(parent_of(path)));
    made = files_.make_folder(path);
  }
  if (!made.ok()) return ignoring(Code::kConflict, made);
  return files_.sync_folder(parent_of(path));
}

// A process that made some of the folders may have ended before it synced them, so all of their
// parents are synced. One that can't be read was not made here.
Status FolderStorage::make_root() {
  TRY(make_path(path_));
  for (std::string path = path_; path != parent_of(path); path = parent_of(path)) {
    (void)files_.sync_folder(parent_of(path));
  }
  TRY_ASSIGN(const std::vector<std::string> names, files_.list(path_));  // it may be a file
  (void)names;
  return {};
}

Result<std::vector<std::string>> FolderStorage::list(const std::string& folder) {
  return files_.list(at(folder));
}

Result<std::unique_ptr<ObjectWriter>> FolderStorage::create(const std::string& name) {
  TRY_ASSIGN(std::unique_ptr<OpenFile> file, files_.create(at(name)));
  return std::unique_ptr<ObjectWriter>(std::make_unique<FileWriter>(std::move(file)));
}

Result<std::unique_ptr<ObjectReader>> FolderStorage::open(const std::string& name) {
  TRY_ASSIGN(std::unique_ptr<OpenFile> file, files_.open(at(name)));
  return std::unique_ptr<ObjectReader>(std::make_unique<FileReader>(std::move(file)));
}

Status FolderStorage::put_new(const std::string& name, std::string_view bytes) {
  TRY_ASSIGN(const std::unique_ptr<OpenFile> file, files_.create(at(name)));
  Status written = file->write(bytes);
  if (written.ok()) written = file->sync();
  if (!written.ok()) {
    (void)files_.remove_file(at(name));  // so that the next try finds room and the name
    return written;
  }
  return files_.sync_folder(parent_of(at(name)));
}

Status FolderStorage::make_folder(const std::string& folder) {
  TRY(ignoring(Code::kConflict, files_.make_folder(at(folder))));
  return files_.sync_folder(parent_of(at(folder)));
}

// Also moves a file that has the name of a folder, so that it can be set aside.
Status FolderStorage::move_folder(const std::string& from, const std::string& to) {
  TRY(ignoring(Code::kNotFound, files_.sync_folder(at(from))));
  TRY(files_.rename_folder(at(from), at(to)));
  return files_.sync_folder(path_);
}

Status FolderStorage::remove_object(const std::string& name) {
  return ignoring(Code::kNotFound, files_.remove_file(at(name)));
}

// Folders of checkpoints contain files alone.
Status FolderStorage::remove_folder(const std::string& folder) {
  const Result<std::vector<std::string>> names = files_.list(at(folder));
  if (!names.ok()) return ignoring(Code::kNotFound, names.error());
  for (const std::string& name : *names) TRY(remove_object(folder + "/" + name));
  return ignoring(Code::kNotFound, files_.remove_folder(at(folder)));
}

}  // namespace lockstep::train
