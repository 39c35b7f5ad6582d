#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "common/base/clock.h"

namespace lockstep::local {

// Writes down when logs grow (store/log_times.h), within about ten milliseconds: who writes them
// writes straight into the file, and a thread of its own hears of it (inotify). Where the system
// has no room for that a warning says so, and the times are those of observe(). Thread-safe.
class LogObserver {
 public:
  // `clock` outlives it, and is asked on any thread.
  explicit LogObserver(const Clock& clock);
  ~LogObserver();
  LogObserver(const LogObserver&) = delete;
  LogObserver& operator=(const LogObserver&) = delete;

  // Begins with a log that is there.
  void add(const std::string& log);
  // No more of it; its times stay.
  void remove(const std::string& log);
  // What was written so far was seen by now at the latest. Nothing for a log that was not added.
  void observe(const std::string& log);

 private:
  struct Entry {
    int watch = -1;  // -1: none
    int64_t bytes = 0;
    int64_t nanoseconds = 0;
  };

  void loop();
  void read_events();
  void observe(const std::string& log, Entry& entry);
  void close_watch(Entry& entry);

  const Clock& clock_;
  int events_ = -1;   // inotify
  int stop_ = -1;     // eventfd
  std::mutex mutex_;  // guards what follows
  std::map<std::string, Entry> logs_;
  std::map<int, std::string> names_;  // by watch
  bool has_warned_ = false;
  std::thread thread_;
};

}  // namespace lockstep::local
