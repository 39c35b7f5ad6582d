#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>

namespace lockstep {

// Linux processes as /proc shows them.

struct ProcessStat {
  pid_t parent = 0;
  pid_t session = 0;
  char state = 0;
  uint64_t start_time = 0;  // in ticks since boot: with the pid, it names one process
  double cpu_seconds = 0;   // its own and those of children that it has waited for
  int64_t resident_bytes = 0;
};

std::optional<ProcessStat> read_process(pid_t pid);
std::map<pid_t, ProcessStat> all_processes();
// Whether `root` is an ancestor.
bool is_below(pid_t pid, pid_t root, const std::map<pid_t, ProcessStat>& all);

// What a tree of processes uses: sums over its live processes.
struct TreeUsage {
  double cpu_seconds = 0;
  int64_t processes = 0;
  int64_t resident_bytes = 0;  // a page that several share counts for each
  int64_t open_files = 0;
  int64_t read_bytes = 0;  // from storage
  int64_t written_bytes = 0;
};

// Of each root: itself, what is below it, and what has left it for another parent within its
// session. One look at /proc.
std::map<pid_t, TreeUsage> usage_of_trees(const std::set<pid_t>& roots);

}  // namespace lockstep
