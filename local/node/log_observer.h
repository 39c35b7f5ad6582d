#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "common/base/clock.h"

namespace lockstep::local {

// Records when logs grow (store/log_times.h), to within about 10 ms. Containers write directly to
// the file, so a dedicated thread watches it with inotify. If the system allows no more watches,
// logs a warning; growth is then recorded only by observe(). Thread-safe.
class LogObserver {
 public:
  // `clock` outlives the object and is read on any thread.
  explicit LogObserver(const Clock& clock);
  ~LogObserver();
  LogObserver(const LogObserver&) = delete;
  LogObserver& operator=(const LogObserver&) = delete;

  // Starts to watch an existing log.
  void add(const std::string& log);
  // Stops watching; the times recorded so far stay.
  void remove(const std::string& log);
  // Records that everything in the log so far was written by now. No-op for a log that was not
  // added.
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
  std::mutex mutex_;  // guards the members below
  std::map<std::string, Entry> logs_;
  std::map<int, std::string> names_;  // by watch
  bool has_warned_ = false;
  std::thread thread_;
};

}  // namespace lockstep::local
