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
  std::vector<std::string> arguments;    // including argv[0]
  std::vector<std::string> environment;  // complete, as KEY=value
  std::string working_folder;
  // stdout and stderr are appended to it, stdin is empty, and the child leads a process group. If
  // empty: a foreground command, which keeps this process's three streams and process group.
  std::string output_file;
  std::vector<int> cpus;  // CPUs it may use; empty: those of this process
};

struct ExitStatus {
  int code = 0;    // 128 + signal if a signal ended it
  int signal = 0;  // 0 if it exited on its own
};

// Starts and reaps all children of this process. The kernel kills a child when this process dies,
// however it dies: children are forked by one permanent thread, because PDEATHSIG follows the
// forking thread. Adopts and reaps orphans of our children (subreaper).
// Every child with an output file leads a process group. No other code in this process may wait for
// children. Thread-safe.
class ProcessHost {
 public:
  // Called once, on the reaper's thread, without a lock; must not block. May be called before
  // spawn() returns.
  using OnExit = std::function<void(ExitStatus)>;

  ProcessHost();
  // Kills the remaining children and waits for them.
  ~ProcessHost();
  ProcessHost(const ProcessHost&) = delete;
  ProcessHost& operator=(const ProcessHost&) = delete;

  // Called once, on the spawner's thread, without a lock; must not block.
  using OnStart = std::function<void(Result<pid_t>)>;

  // Returns once the program runs. kNotFound, kUnavailable: it could not be started.
  Result<pid_t> spawn(const SpawnSpec& spec, OnExit on_exit);
  // Returns immediately. `on_exit` may be called before `on_start`, and is not called if the
  // program could not be started.
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

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<Request> requests_;
  std::map<pid_t, OnExit> children_;
  bool closing_ = false;  // starts nothing more
  bool stopping_ = false;
  uint64_t spawned_ = 0;

  std::thread spawner_;
  std::thread reaper_;
};

}  // namespace lockstep::local
