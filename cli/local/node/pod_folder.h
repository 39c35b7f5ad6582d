#pragma once

#include <string>
#include <string_view>

#include "common/base/json.h"
#include "common/base/result.h"

namespace lockstep::local {

// A pod's files: its root folder (0700), where a path of the container, such as a volume's mount
// path, is looked up below the root (the local node has no mount namespaces; programs learn the
// root from LOCKSTEP_POD_ROOT).
class PodFolder {
 public:
  explicit PodFolder(std::string root) : root_(std::move(root)) {}

  const std::string& root() const { return root_; }
  std::string path_of(const std::string& container_path) const { return root_ + container_path; }

  Status create() const;
  // An empty folder, 0700.
  Status add_folder(const std::string& mount_path) const;
  // One file (0600) for each member of a Secret's `data`, decoded. kCorrupt: not base64, or a key
  // that is no file name.
  Status add_secret(const std::string& mount_path, const Json& data) const;
  void remove() const;

 private:
  std::string root_;
};

// Writes the whole file; kUnavailable names the file and the cause (a full disk, ...).
Status write_file(const std::string& file, std::string_view content);
// The same, readable by this user alone.
Status write_private_file(const std::string& file, std::string_view content);
// mkdir -p with mode 0700 for what is made.
Status make_private_folder(const std::string& folder);
// The last `bytes_max` bytes; empty where there is no such file.
std::string end_of_file(const std::string& file, size_t bytes_max);
// A log that is appended to has grown beyond `bytes_max`: keeps its last `bytes_kept`. What is
// written at that very moment may be lost.
void bound_log(const std::string& file, size_t bytes_max, size_t bytes_kept);

}  // namespace lockstep::local
