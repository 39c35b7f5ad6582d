#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep::local {

// Returns the executable for a container's command:
// - one of Lockstep's own programs in `folder`, by base name, so that a pod's
//   /opt/lockstep/bin/lockstep-agent is found wherever Lockstep is installed;
// - else the path itself;
// - else the first match in PATH, or the command itself if nothing matches.
std::string find_program(const std::string& command, const std::string& folder);

// Returns this process's environment overridden by the entries in `own`, as KEY=value.
std::vector<std::string> merged_environment(
    const std::vector<std::pair<std::string, std::string>>& own);

}  // namespace lockstep::local
