#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/base/result.h"

namespace lockstep::local {

struct SpawnSpec {
  std::string program;                   // a path
  std::vector<std::string> arguments;    // from argv[0] on
  std::vector<std::string> environment;  // KEY=value, whole
  std::string working_folder;
  // stdout and stderr are appended to it, stdin is empty, and the child leads a process group.
  // Empty: a command in the foreground, which keeps our three streams and our process group.
  std::string output_file;
  std::vector<int> cpus;  // those that it may use; empty: as this process
};

struct ExitStatus {
  int code = 0;    // 128 + signal where a signal ended it
  int signal = 0;  // 0 if it exited by itself
};

// Starts and reaps all children of this process. Each child is a process group of its own and is
// killed by the kernel when this process dies, however that happens: children are started from one
// permanent thread, because PDEATHSIG follows the thread that forked. Orphans of our children are
// adopted and reaped (subreaper). Nobody else in the process may wait for children. Thread-safe.
class ProcessHost {
 public:
  // Called once, on the reaper's thread, without a lock; must not block. It may be called before
  // spawn() has returned.
  using OnExit = std::function<void(ExitStatus)>;

  ProcessHost();
  // Kills the children that are left and waits for them.
  ~ProcessHost();
  ProcessHost(const ProcessHost&) = delete;
  ProcessHost& operator=(const ProcessHost&) = delete;

  // Called once, on the spawner's thread, without a lock; must not block.
  using OnStart = std::function<void(Result<pid_t>)>;

  // Returns once the program runs; kNotFound or kUnavailable where it could not be started.
  Result<pid_t> spawn(const SpawnSpec& spec, OnExit on_exit);
  // Returns at once. `on_exit` may be called before `on_start`, and is not called where the program
  // could not be started.
  void spawn_later(SpawnSpec spec, OnStart on_start, OnExit on_exit);

 private:
  struct Request {
    SpawnSpec spec;
    OnExit on_exit;
    OnStart on_start;
  };

  void spawn_loop();
  void reap_loop();
  Result<pid_t> fork_and_exec(const SpawnSpec& spec, OnExit on_exit);

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Request> requests_;
  std::map<pid_t, OnExit> children_;
  bool closing_ = false;  // nothing is started any more
  bool stopping_ = false;
  uint64_t spawned_ = 0;

  std::thread spawner_;
  std::thread reaper_;
};

}  // namespace lockstep::local
