#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace lockstep::node {

// Process management for a supervisor that is process 1 of a container. Call everything from one
// thread, which must outlive the processes: PR_SET_PDEATHSIG follows the thread that forked.

// Makes this process the parent of orphaned descendants. Blocks SIGCHLD, SIGTERM, SIGINT and SIGHUP
// for this thread and the threads it starts later. Returns a non-blocking signalfd that reports
// them.
Result<int> become_init();

// Empties the signalfd. Returns whether a terminating signal was among them.
bool read_signals(int signal_fd);

struct SpawnOptions {
  std::vector<std::string> argv;   // argv[0] is searched in env's PATH if it has no '/'
  std::vector<std::string> env;    // NAME=value; the whole environment
  int output_fd = -1;              // for its stdout and stderr; stdin is /dev/null
  std::vector<int> inherited_fds;  // keep their numbers; all others are closed at exec
};

// Starts a process in its own session, with default signal handlers. The kernel kills it when the
// calling thread ends. kNotFound or kUnavailable, with the reason, if the program cannot be
// started.
Result<pid_t> spawn_process(const SpawnOptions& options);

struct ProcessEnd {
  pid_t pid = 0;
  int exit_code = 0;  // 128 + signal if a signal ended it
  int signal = 0;
  double cpu_seconds = 0;  // its own and that of children it has waited for
};

// Reaps every child that has ended, including adopted orphans. If it is one of `leaders`, also
// kills its process group.
std::vector<ProcessEnd> reap_children(const std::set<pid_t>& leaders);
// Returns whether this process has children, including zombies. Without children it has no
// descendants either.
bool has_children();
// Returns whether this process has descendants, including zombies, other than these children and
// their own descendants.
bool has_descendants(const std::set<pid_t>& but);
// Sends SIGKILL to all these descendants, in any session. Processes that they fork meanwhile become
// children of this process, so call it again until has_descendants() is false.
void kill_descendants(const std::set<pid_t>& but);

}  // namespace lockstep::node
