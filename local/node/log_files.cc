#include "local/node/log_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <vector>

#include "local/node/files.h"
#include "local/store/log_times.h"

namespace lockstep::local {
namespace {

// Holes are made of whole blocks. 64 KiB is a multiple of every file system's block size. A times
// file may get a partly punched block: its zeroed records carry no information.
constexpr off_t kLogBlockBytes = 64 << 10;
constexpr off_t kTimesBlockBytes = 4 << 10;

void cut_beginning(int fd, const std::string& file, size_t bytes_kept) {
  std::string kept = end_of_file(file, bytes_kept);
  // A full disk must not stop a pod because of its log.
  if (ftruncate(fd, 0) == 0) (void)!write(fd, kept.data(), kept.size());
}

// Makes [0, end) a hole, rounded down to whole blocks; false if it made none.
bool forget_beginning(int fd, off_t end, off_t block_bytes) {
  end = end / block_bytes * block_bytes;
  return end > 0 && fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, end) == 0;
}

off_t bytes_on_disk(const struct stat& info) {
  return std::min<off_t>(info.st_size, info.st_blocks * 512);
}

// Returns up to which offset the log must be forgotten so that its times file gets short enough; 0
// if it already is.
off_t end_of_old_times(const std::string& times_file, size_t bytes_max) {
  struct stat info {};
  if (stat(times_file.c_str(), &info) != 0 || bytes_on_disk(info) <= static_cast<off_t>(bytes_max))
    return 0;
  Result<LogTimes> times = LogTimes::open(times_file);
  if (!times.ok()) return 0;
  const auto records = static_cast<int64_t>(bytes_max / 2 / sizeof(LogTimeRecord));
  return times->at(std::max(times->first_index(), times->end_index() - records)).bytes;
}

// Forgets the records of the forgotten part of the log.
void forget_times(int log, const std::string& times_file) {
  const off_t first = lseek(log, 0, SEEK_DATA);
  Result<LogTimes> times = LogTimes::open(times_file);
  const int fd = open(times_file.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  if (first > 0 && times.ok())
    forget_beginning(fd, times->index_after(first) * static_cast<off_t>(sizeof(LogTimeRecord)),
                     kTimesBlockBytes);
  close(fd);
}

}  // namespace

void trim_log(const std::string& file, size_t bytes_max, size_t times_bytes_max) {
  int fd = open(file.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0) return;
  const std::string times_file = times_file_of(file);
  struct stat info {};
  const auto limit = static_cast<off_t>(bytes_max);
  if (fstat(fd, &info) == 0) {
    off_t end = end_of_old_times(times_file, times_bytes_max);
    const bool too_long = bytes_on_disk(info) > limit;
    if (too_long) end = std::max(end, info.st_size - limit / 2);
    if (forget_beginning(fd, end, kLogBlockBytes))
      forget_times(fd, times_file);
    else if (too_long)
      cut_beginning(fd, file, bytes_max / 2);
  }
  close(fd);
}

Result<std::string> LogFiles::next_file(const ContainerId& id) {
  std::lock_guard lock(mutex_);
  PodEntry& pod = pods_[id.uid];
  std::string base = options_.folder + "/";
  if (options_.keep) {
    base += id.pod + (id.is_only_container ? "" : "_" + id.container);
  } else {
    pod.folder = base + id.namespace_ + "_" + id.pod + "_" + id.uid;
    base = pod.folder + "/" + id.container;
    TRY(make_private_folder(pod.folder));
  }
  auto [at, is_first] = pod.containers.try_emplace(id.container);
  Entry& entry = at->second;
  entry.pod = id.pod;
  entry.current = base + ".log";
  if (!is_first) {
    entry.previous = base + ".previous.log";
    observer_.remove(entry.current);
    std::error_code error;
    std::filesystem::rename(times_file_of(entry.current), times_file_of(entry.previous), error);
    std::filesystem::rename(entry.current, entry.previous, error);
    if (error) return unavailable("[log] " + entry.current + ": " + error.message());
  }
  const int fd = open(entry.current.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return errno_error("[log] " + entry.current, errno);
  close(fd);
  observer_.add(entry.current);
  return entry.current;
}

void LogFiles::remove(const std::string& pod_uid) {
  PodEntry pod;
  {
    std::lock_guard lock(mutex_);
    auto found = pods_.find(pod_uid);
    if (found == pods_.end()) return;
    pod = std::move(found->second);
    pods_.erase(found);
  }
  forget(pod);
  std::error_code ignored;
  if (!pod.folder.empty()) std::filesystem::remove_all(pod.folder, ignored);
}

void LogFiles::forget(const PodEntry& pod) {
  for (const auto& [name, entry] : pod.containers) {
    observer_.remove(entry.current);
    for (const std::string& log : {entry.current, entry.previous}) {
      if (!log.empty()) unlink(times_file_of(log).c_str());
    }
  }
}

LogFiles::~LogFiles() {
  for (const auto& [uid, pod] : pods_) forget(pod);
}

void LogFiles::trim() {
  std::vector<std::string> files;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [uid, pod] : pods_) {
      for (const auto& [name, entry] : pod.containers) files.push_back(entry.current);
    }
  }
  for (const std::string& file : files) {
    observer_.observe(file);
    trim_log(file, options_.bytes_max, options_.times_bytes_max);
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
  observer_.observe(entry.current);
  if (!previous) return entry.current;
  if (entry.previous.empty())
    return not_found("previous terminated container \"" + container + "\" in pod \"" + entry.pod +
                     "\" not found");
  return entry.previous;
}

}  // namespace lockstep::local
