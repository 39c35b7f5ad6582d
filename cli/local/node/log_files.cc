#include "cli/local/node/log_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "cli/local/node/files.h"

namespace lockstep::local {
namespace {

constexpr off_t kBlockBytes = 64 << 10;

void cut_beginning(int fd, const std::string& file, size_t bytes_kept) {
  std::string kept = end_of_file(file, bytes_kept);
  // A full disk must not stop a pod because of its log.
  if (ftruncate(fd, 0) == 0) (void)!write(fd, kept.data(), kept.size());
}

}  // namespace

void bound_log(const std::string& file, size_t bytes_max) {
  int fd = open(file.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0) return;
  struct stat info {};
  auto limit = static_cast<off_t>(bytes_max);
  if (fstat(fd, &info) == 0 && info.st_size > limit && info.st_blocks * 512 > limit) {
    off_t end = (info.st_size - limit / 2) / kBlockBytes * kBlockBytes;
    if (end <= 0 || fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, end) != 0)
      cut_beginning(fd, file, bytes_max / 2);
  }
  close(fd);
}

Result<std::string> LogFiles::next_file(const Place& place) {
  std::lock_guard lock(mutex_);
  PodEntry& pod = pods_[place.uid];
  std::string base = options_.folder + "/";
  if (options_.keep) {
    base += place.pod + (place.is_only_container ? "" : "_" + place.container);
  } else {
    pod.folder = base + place.namespace_ + "_" + place.pod + "_" + place.uid;
    base = pod.folder + "/" + place.container;
    TRY(make_private_folder(pod.folder));
  }
  auto [at, is_first] = pod.containers.try_emplace(place.container);
  Entry& entry = at->second;
  entry.pod = place.pod;
  entry.current = base + ".log";
  if (is_first) return entry.current;
  entry.previous = base + ".previous.log";
  std::error_code error;
  std::filesystem::rename(entry.current, entry.previous, error);
  if (error) return unavailable("[log] " + entry.current + ": " + error.message());
  return entry.current;
}

void LogFiles::remove(const std::string& pod_uid) {
  std::string folder;
  {
    std::lock_guard lock(mutex_);
    auto found = pods_.find(pod_uid);
    if (found == pods_.end()) return;
    folder = found->second.folder;
    pods_.erase(found);
  }
  std::error_code ignored;
  if (!folder.empty()) std::filesystem::remove_all(folder, ignored);
}

void LogFiles::bound() {
  std::vector<std::string> files;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [uid, pod] : pods_) {
      for (const auto& [name, entry] : pod.containers) files.push_back(entry.current);
    }
  }
  for (const std::string& file : files) {
    struct stat info {};
    if (stat(file.c_str(), &info) == 0 && static_cast<size_t>(info.st_size) > options_.bytes_max)
      bound_log(file, options_.bytes_max);
  }
}

Result<std::string> LogFiles::log_file(const std::string& pod_uid, const std::string& container,
                                       bool previous) const {
  std::lock_guard lock(mutex_);
  auto pod = pods_.find(pod_uid);
  if (pod == pods_.end())
    return not_found("container \"" + container + "\" is waiting to start: ContainerCreating");
  auto found = pod->second.containers.find(container);
  if (found == pod->second.containers.end())
    return not_found("container \"" + container + "\" in pod is waiting to start: PodInitializing");
  const Entry& entry = found->second;
  if (!previous) return entry.current;
  if (entry.previous.empty())
    return not_found("previous terminated container \"" + container + "\" in pod \"" + entry.pod +
                     "\" not found");
  return entry.previous;
}

}  // namespace lockstep::local
