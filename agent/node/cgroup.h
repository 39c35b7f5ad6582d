#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::node {

// The limits that the kernel sets for this pod, read from its control group (version 2 or 1).
class Cgroup {
 public:
  // `root` is the mount point of control groups, `membership` the text of /proc/self/cgroup.
  Cgroup(std::string root, std::string_view membership);
  // Opens the control group of this process.
  static Cgroup of_self();

  // Returns how many processes of the group the OOM killer has killed; -1 if unreadable. Source:
  // Linux, Documentation/admin-guide/cgroup-v2.rst (memory.events, oom_kill) and
  // cgroup-v1/memory.rst (memory.oom_control).
  int64_t oom_kills() const;
  // Returns the number of CPUs that the quota allows, rounded up; 0: no quota.
  int64_t cpu_quota() const;

 private:
  std::vector<std::string> memory_files_;  // candidates; the first readable one counts
  std::vector<std::string> cpu_folders_;
};

// Returns how many CPUs this process may use: those of its affinity mask, limited by the quota. At
// least 1.
int64_t usable_cpus(const Cgroup& cgroup);

}  // namespace lockstep::node
