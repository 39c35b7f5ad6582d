#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// What the kernel allows this pod, read from its control group (version 2 or 1).
class Cgroup {
 public:
  // `root` is where control groups are mounted, `membership` the text of /proc/self/cgroup.
  Cgroup(std::string root, std::string_view membership);
  // Of this process.
  static Cgroup of_self();

  // Processes of the group that the OOM killer ended so far; -1 where it can't be read.
  // Source: Linux, Documentation/admin-guide/cgroup-v2.rst (memory.events, oom_kill) and
  // cgroup-v1/memory.rst (memory.oom_control).
  int64_t oom_kills() const;
  // CPUs worth of time that the quota allows, rounded up; 0: no quota.
  int64_t cpu_quota() const;

 private:
  std::vector<std::string> memory_files_;  // the first that can be read counts
  std::vector<std::string> cpu_folders_;
};

// CPUs that this process may use: its affinity, bounded by the quota. At least 1.
int64_t usable_cpus(const Cgroup& cgroup);

}  // namespace lockstep
