#include "local/node/program.h"

#include <unistd.h>

#include <cstdlib>
#include <map>
#include <sstream>

extern char** environ;

namespace lockstep::local {

std::string find_program(const std::string& command, const std::string& folder) {
  std::string base = command.substr(command.rfind('/') + 1);
  if (base.starts_with("lockstep")) {
    if (std::string own = folder + "/" + base; access(own.c_str(), X_OK) == 0) return own;
  }
  if (command.find('/') != std::string::npos) return command;
  const char* path = getenv("PATH");
  std::istringstream folders(path == nullptr ? "/usr/bin:/bin" : path);
  for (std::string candidate; std::getline(folders, candidate, ':');) {
    candidate += "/" + command;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return command;
}

std::vector<std::string> merged_environment(
    const std::vector<std::pair<std::string, std::string>>& own) {
  std::map<std::string, std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string text = *entry;
    size_t equals = text.find('=');
    if (equals != std::string::npos) merged[text.substr(0, equals)] = text.substr(equals + 1);
  }
  for (const auto& [name, value] : own) merged[name] = value;
  std::vector<std::string> entries;
  entries.reserve(merged.size());
  for (const auto& [name, value] : merged) entries.push_back(name + "=" + value);
  return entries;
}

}  // namespace lockstep::local
