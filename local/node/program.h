#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep::local {

// The file of a container's command: one of Lockstep's own programs in `folder` first (so that
// /opt/lockstep/bin/lockstep-agent of a pod is found wherever Lockstep is installed), else the path
// itself, else along PATH. The command itself where there is none.
std::string find_program(const std::string& command, const std::string& folder);

// This process's environment with `own` entries over it, as KEY=value.
std::vector<std::string> merged_environment(
    const std::vector<std::pair<std::string, std::string>>& own);

}  // namespace lockstep::local
