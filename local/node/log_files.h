#pragma once

#include <map>
#include <mutex>
#include <string>

#include "common/base/result.h"
#include "local/node/log_observer.h"
#include "local/store/pod_logs.h"

namespace lockstep::local {

struct LogFilesOptions {
  std::string folder;
  // True, for people: <pod>.log (<pod>_<container>.log if the pod has several), kept when the pod
  // goes. False, like a kubelet: <namespace>_<pod>_<uid>/<container>.log, removed with the pod.
  bool keep = false;
  size_t bytes_max = 64u << 20;       // per log file, on disk
  size_t times_bytes_max = 4u << 20;  // per file of line times
};

// The output of containers: one file per instance; the newest two are kept. If a file or its times
// file gets too long, its beginning becomes a hole, so offsets stay valid for readers that follow
// it. The times of its lines are in a file next to it (store/log_times.h), removed with the pod.
// Thread-safe.
class LogFiles final : public PodLogs {
 public:
  // `clock` outlives the object and is read on any thread.
  LogFiles(const Clock& clock, LogFilesOptions options)
      : options_(std::move(options)), observer_(clock) {}
  ~LogFiles() override;

  struct ContainerId {
    std::string namespace_;
    std::string pod;
    std::string uid;
    std::string container;
    bool is_only_container = false;
  };
  // Returns the file for the container's next instance; the newest file becomes the previous one.
  Result<std::string> next_file(const ContainerId& id);
  // The container has ended, and the file is complete.
  void ended(const std::string& file) { observer_.observe(file); }
  // The pod is gone: forgets its files, and deletes them unless they are kept.
  void remove(const std::string& pod_uid);
  // Trims files that are too long; see trim_log().
  void trim();

  Result<std::string> log_file(const std::string& pod_uid, const std::string& container,
                               bool previous) const override;

 private:
  struct Entry {
    std::string current;
    std::string previous;  // empty: none
    std::string pod;
  };
  struct PodEntry {
    std::string folder;  // removed with the pod; empty: none
    std::map<std::string, Entry> containers;
  };

  // Deletes the times files.
  void forget(const PodEntry& pod);

  const LogFilesOptions options_;
  mutable LogObserver observer_;
  mutable std::mutex mutex_;              // guards the members below
  std::map<std::string, PodEntry> pods_;  // by UID
};

// Frees disk space: if a log takes more than `bytes_max`, keeps about the last `bytes_max` / 2.
// Does the same for its times file and `times_bytes_max`; the bytes that stay in the log keep their
// times.
// If the file system has no holes, cuts off the log's beginning instead; output written at that
// moment may be lost.
void trim_log(const std::string& file, size_t bytes_max, size_t times_bytes_max);

}  // namespace lockstep::local
