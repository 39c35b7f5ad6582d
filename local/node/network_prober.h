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
  std::string request;  // an HTTP request, whole; empty: connecting is enough
  Duration timeout = std::chrono::seconds(1);
};

// An HTTP GET that ends with its answer.
std::string http_get_text(const std::string& path, const std::string& host,
                          const std::vector<std::pair<std::string, std::string>>& headers);

// Carries out network probes on a thread of its own: many at a time, each bounded in time and in
// what it reads. Thread-safe.
class NetworkProber {
 public:
  // Called once, on the prober's thread, without a lock; must not block. HTTP succeeds with a code
  // from 200 to 399; `text` says what came instead, in kubelet's words.
  using OnDone = std::function<void(bool ok, const std::string& text)>;

  // `clock` outlives the object.
  explicit NetworkProber(const Clock& clock);
  // Drops what is in flight; its callbacks are not called.
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
  // True: it has ended, and on_done was called.
  bool advance(Task& task, short events);
  static void finish(Task& task, bool ok, const std::string& text);

  const Clock& clock_;
  int wake_fd_ = -1;
  std::mutex mutex_;  // guards what follows
  std::deque<Task> new_;
  bool stopping_ = false;
  std::vector<Task> tasks_;  // the thread's alone
  std::thread thread_;
};

}  // namespace lockstep::local
