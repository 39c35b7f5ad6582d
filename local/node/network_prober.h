#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"

namespace lockstep::local {

struct NetworkProbe {
  std::string address;
  uint16_t port = 0;
  std::string request;  // a whole HTTP request; empty: only connects
  Duration timeout = std::chrono::seconds(1);
};

// Returns an HTTP GET request with "Connection: close".
std::string http_get_text(const std::string& path, const std::string& host,
                          const std::vector<std::pair<std::string, std::string>>& headers);

// Runs network probes on a dedicated thread, many at a time. Limits the time and the bytes read of
// each. Thread-safe.
class NetworkProber {
 public:
  // Called once, on the prober's thread, without a lock; must not block. HTTP succeeds with a
  // status code from 200 to 399; otherwise `text` gives the reason in kubelet's words.
  using OnDone = std::function<void(bool ok, const std::string& text)>;

  // `clock` outlives the object.
  explicit NetworkProber(const Clock& clock);
  // Drops probes in flight without calling their callbacks.
  ~NetworkProber();
  NetworkProber(const NetworkProber&) = delete;
  NetworkProber& operator=(const NetworkProber&) = delete;

  void probe(NetworkProbe probe, OnDone on_done);

 private:
  struct Task {
    NetworkProbe probe;
    OnDone on_done;
    int fd = -1;
    bool connected = false;
    TimePoint deadline{};
    size_t sent = 0;
    std::string answer;
  };

  void loop();
  void open(Task& task);
  // Returns true if the task has ended and on_done was called.
  bool advance(Task& task, short events);
  static void finish(Task& task, bool ok, const std::string& text);

  const Clock& clock_;
  int wake_fd_ = -1;
  std::mutex mutex_;  // guards the members below
  std::deque<Task> new_;
  bool stopping_ = false;
  std::vector<Task> tasks_;  // used by the thread only
  std::thread thread_;
};

}  // namespace lockstep::local
