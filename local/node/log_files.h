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
  // True: <pod>.log (<pod>_<container>.log where there are several), kept when the pod goes, for
  // people. False: <namespace>_<pod>_<uid>/<container>.log, removed with the pod, as a kubelet
  // does.
  bool keep = false;
  size_t bytes_max = 64u << 20;       // of each file, on the disk
  size_t times_bytes_max = 4u << 20;  // and of the times of its lines
};

// The output of containers: one file for each instance, of which the newest two are there. A file
// that grows too long, or has been written to too often, loses its beginning: it becomes a hole, so
// that offsets stay what they were and nobody who follows it misses anything. The times of lines
// lie beside (store/log_times.h) and go with the pod. Thread-safe.
class LogFiles final : public PodLogs {
 public:
  // `clock` outlives it, and is asked on any thread.
  LogFiles(const Clock& clock, LogFilesOptions options)
      : options_(std::move(options)), observer_(clock) {}
  ~LogFiles() override;

  struct Place {
    std::string namespace_;
    std::string pod;
    std::string uid;
    std::string container;
    bool is_only_container = false;
  };
  // The file for the next instance of this container; what was the newest becomes the previous.
  Result<std::string> next_file(const Place& place);
  // Its container has ended: all that is in the file has come.
  void ended(const std::string& file) { observer_.observe(file); }
  // The pod is gone.
  void remove(const std::string& pod_uid);
  // Makes room in files that are too long.
  void bound();

  Result<std::string> log_file(const std::string& pod_uid, const std::string& container,
                               bool previous) const override;

 private:
  struct Entry {
    std::string current;
    std::string previous;  // empty: there is none
    std::string pod;
  };
  struct PodEntry {
    std::string folder;  // to be removed with the pod; empty: nothing
    std::map<std::string, Entry> containers;
  };

  // The times of its lines go.
  void forget(const PodEntry& pod);

  const LogFilesOptions options_;
  mutable LogObserver observer_;
  mutable std::mutex mutex_;              // guards what follows
  std::map<std::string, PodEntry> pods_;  // by UID
};

// Gives back the room of all but about the last half of `bytes_max`, if the file takes more than
// that; the same for the file of its times and `times_bytes_max`. What is left of the one has its
// time in the other. Where the file system knows no holes, the beginning is cut off instead, and
// what is written at that very moment may be lost.
void bound_log(const std::string& file, size_t bytes_max, size_t times_bytes_max);

}  // namespace lockstep::local
