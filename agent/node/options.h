#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/api/world_assignment.h"
#include "common/base/result.h"

namespace lockstep::node {

// The agent's configuration. It comes from the pod's environment, which the controller writes, or
// from flags (for tests and manual use).
struct AgentOptions {
  std::string address;  // to listen on
  int64_t port = 0;
  std::string job_uid;
  std::string job_name;
  MemberRole role = MemberRole::kWorker;
  int64_t node_index = 0;
  int64_t incarnation = 0;
  std::string work_folder;
  std::string token_file;
  bool signed_only = false;   // the controller that made the pod knows sessions: refuse the token
  bool must_encrypt = false;  // refuse sessions without encryption, too
  std::string worker_binary;
  std::string termination_path;
  bool create_termination = false;
  int64_t hold_seconds = 600;
  bool keep_survivors = true;  // LOCKSTEP_SURVIVORS: stay, or respawn to start each round anew
  std::string install_folder;  // if set, only copy the bundle there and exit
  bool log_json = false;
  bool help = false;
};

// Reads the options. `environment` maps names to values; `binary` is the agent's own path, next to
// which lockstep-worker is expected. LOCKSTEP_POD_ROOT is the folder that contains the pod's mounts
// on nodes without mount namespaces. kInvalid names the variable or the flag.
Result<AgentOptions> read_agent_options(const std::vector<std::string>& arguments,
                                        const std::map<std::string, std::string>& environment,
                                        const std::string& binary);

// Returns the text for --help.
std::string agent_usage();

}  // namespace lockstep::node
