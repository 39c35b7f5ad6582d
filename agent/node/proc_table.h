#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>

namespace lockstep::node {

// Linux processes, read from /proc.

struct ProcessStat {
  pid_t parent = 0;
  pid_t session = 0;
  char state = 0;
  uint64_t start_time = 0;  // in ticks since boot; unique together with the pid
  double cpu_seconds = 0;   // its own and that of children it has waited for
  int64_t resident_bytes = 0;
};

std::optional<ProcessStat> read_process(pid_t pid);
std::map<pid_t, ProcessStat> all_processes();
// Returns whether `root` is an ancestor of `pid`.
bool is_below(pid_t pid, pid_t root, const std::map<pid_t, ProcessStat>& all);

// Resource usage of a process tree, summed over its live processes.
struct TreeUsage {
  double cpu_seconds = 0;
  int64_t processes = 0;
  int64_t resident_bytes = 0;  // a page shared by several processes counts once for each
  int64_t open_files = 0;
  int64_t read_bytes = 0;  // from storage
  int64_t written_bytes = 0;
};

// Returns the usage of each root's tree: the root, its descendants, and processes of its session
// that were reparented. Reads /proc once.
std::map<pid_t, TreeUsage> usage_of_trees(const std::set<pid_t>& roots);

}  // namespace lockstep::node
