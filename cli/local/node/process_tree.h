#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace lockstep::local {

// Processes whose environment has exactly this entry ("KEY=value"): how the descendants of a pod
// are found, whatever groups, sessions and parents they have chosen.
std::vector<pid_t> processes_with(const std::string& environment_entry);

// Sends SIGKILL to all of them until there are none; false if some are left after a bounded number
// of rounds (stuck in the kernel).
bool kill_processes_with(const std::string& environment_entry);

}  // namespace lockstep::local
