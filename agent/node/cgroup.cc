#include "agent/node/cgroup.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace lockstep::node {
namespace {

// Returns the group's path: after "0::" in version 2 (empty controller), else the controller's own.
std::string group_path(std::string_view membership, std::string_view controller) {
  std::istringstream lines{std::string(membership)};
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string wanted = "," + std::string(controller) + ",";
    const bool found = controller.empty() ? names == ",," : names.find(wanted) != std::string::npos;
    if (found) return line.substr(second + 1);
  }
  return "/";
}

int64_t number_after(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  int64_t value = 0;
  while (file >> word >> value) {
    if (word == key) return value;
  }
  return -1;
}

int64_t whole_cpus(double quota, double period) {
  if (quota <= 0 || period <= 0) return 0;
  return std::max<int64_t>(static_cast<int64_t>((quota + period - 1) / period), 1);
}

}  // namespace

// In a container the group is the root of its own mount; outside it is below the root.
Cgroup::Cgroup(std::string root, std::string_view membership) {
  for (const std::string& path : {group_path(membership, ""), std::string("/")}) {
    memory_files_.push_back(root + path + "/memory.events");
    cpu_folders_.push_back(root + path);
  }
  for (const std::string& path : {group_path(membership, "memory"), std::string("/")}) {
    memory_files_.push_back(root + "/memory" + path + "/memory.oom_control");
  }
  for (const std::string& path : {group_path(membership, "cpu"), std::string("/")}) {
    cpu_folders_.push_back(root + "/cpu" + path);
  }
}

Cgroup Cgroup::of_self() {
  std::ifstream file("/proc/self/cgroup");
  std::stringstream text;
  text << file.rdbuf();
  return Cgroup("/sys/fs/cgroup", text.str());
}

int64_t Cgroup::oom_kills() const {
  for (const std::string& path : memory_files_) {
    const int64_t count = number_after(path, "oom_kill");
    if (count >= 0) return count;
  }
  return -1;
}

int64_t Cgroup::cpu_quota() const {
  for (const std::string& folder : cpu_folders_) {
    std::ifstream version2(folder + "/cpu.max");
    std::string quota;
    double period = 0;
    if (version2 >> quota >> period) {
      return quota == "max" ? 0 : whole_cpus(std::strtod(quota.c_str(), nullptr), period);
    }
    std::ifstream version1(folder + "/cpu.cfs_quota_us");
    std::ifstream version1_period(folder + "/cpu.cfs_period_us");
    double quota_us = 0;
    if (version1 >> quota_us && version1_period >> period) return whole_cpus(quota_us, period);
  }
  return 0;
}

int64_t usable_cpus(const Cgroup& cgroup) {
  cpu_set_t set;
  CPU_ZERO(&set);
  const bool known = sched_getaffinity(0, sizeof(set), &set) == 0;
  const int64_t cpus = std::max<int64_t>(known ? CPU_COUNT(&set) : 1, 1);
  const int64_t quota = cgroup.cpu_quota();
  return quota > 0 ? std::min(cpus, quota) : cpus;
}

}  // namespace lockstep::node
