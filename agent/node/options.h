#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace lockstep {

// What an agent is told at its start, by the pod's environment (which the controller writes) and,
// for tests and by hand, by flags.
struct AgentOptions {
  std::string address;  // to listen on
  int64_t port = 0;
  std::string job_uid;
  std::string job_name;
  int64_t node_index = 0;
  int64_t incarnation = 0;
  std::string work_folder;
  std::string token_file;
  std::string worker_binary;
  std::string termination_path;
  bool create_termination = false;
  int64_t hold_seconds = 600;
  std::string install_folder;  // copy the bundle there, and no more
  bool log_json = false;
  bool help = false;
};

// `environment` by name; `binary` is the agent's own path: lockstep-worker is beside it.
// LOCKSTEP_POD_ROOT is the folder below which the pod's mounts are where a node has no mount
// namespaces. kInvalid names the variable or the flag.
Result<AgentOptions> read_agent_options(const std::vector<std::string>& arguments,
                                        const std::map<std::string, std::string>& environment,
                                        const std::string& binary);

// For --help.
std::string agent_usage();

}  // namespace lockstep
