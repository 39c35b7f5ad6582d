#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/train/checkpoint/file_system.h"
#include "agent/train/checkpoint/storage.h"
#include "common/base/result.h"

namespace lockstep::train {

// Storage in a folder of a file system, which may be shared by many machines (NFS 3 and later,
// Lustre, CephFS, local disks). Every name that it makes or changes is durable at return: the
// folder that has it is synced.
class FolderStorage final : public Storage {
 public:
  // The file system outlives it.
  FolderStorage(std::string path, FileSystem& files) : path_(std::move(path)), files_(files) {}

  // Makes the folder and those above it where they are missing, and syncs all that are above it.
  Status make_root();

  std::string describe(std::string_view name) const override { return at(name); }
  Result<std::vector<std::string>> list(const std::string& folder) override;
  Result<std::unique_ptr<ObjectWriter>> create(const std::string& name) override;
  Result<std::unique_ptr<ObjectReader>> open(const std::string& name) override;
  Status put_new(const std::string& name, std::string_view bytes) override;
  Status make_folder(const std::string& folder) override;
  Status move_folder(const std::string& from, const std::string& to) override;
  Status remove_object(const std::string& name) override;
  Status remove_folder(const std::string& folder) override;

 private:
  std::string at(std::string_view name) const;
  // Makes a folder and those above it, from the first that is missing.
  Status make_path(const std::string& path);

  std::string path_;
  FileSystem& files_;
};

}  // namespace lockstep::train
