#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace lockstep {

// Linux processes: what a supervisor and process 1 of a container need. All of it belongs to one
// thread, which must live as long as the processes: PR_SET_PDEATHSIG follows the thread that
// forked.

// Orphans below this process become its children; SIGCHLD, SIGTERM, SIGINT and SIGHUP are blocked
// for this thread and those that it starts. Returns a non-blocking signalfd that reports them.
Result<int> become_init();

// Empties the signalfd: whether one of those that end it was among the signals.
bool read_signals(int signal_fd);

struct SpawnOptions {
  std::vector<std::string> argv;   // argv[0] is looked up in env's PATH if it has no '/'
  std::vector<std::string> env;    // NAME=value, the whole environment
  int output_fd = -1;              // its stdout and stderr; stdin is /dev/null
  std::vector<int> inherited_fds;  // keep their numbers; everything else is closed at exec
};

// Starts a process in a session of its own, with default signals, that the kernel kills when the
// calling thread ends. The program could not be started: kNotFound or kUnavailable, with the
// reason.
Result<pid_t> spawn_process(const SpawnOptions& options);

struct ProcessEnd {
  pid_t pid = 0;
  int exit_code = 0;  // 128 + signal where a signal ended it
  int signal = 0;
  double cpu_seconds = 0;  // its own and those of children that it has waited for
};

// Every child that has ended since, adopted orphans too. The process group of one of `leaders` is
// killed with it.
std::vector<ProcessEnd> reap_children(const std::set<pid_t>& leaders);
// Whether this process has children, zombies included. None: nothing is left below it either.
bool has_children();
// SIGKILL to all processes below this one, in whatever session. What they fork meanwhile becomes
// this process' child: call it again until has_children() is false.
void kill_descendants();

}  // namespace lockstep
