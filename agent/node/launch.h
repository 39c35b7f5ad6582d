#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/api/agent_messages.h"
#include "common/api/worker_config.h"

namespace lockstep::node {

// Settings shared by all workers of this agent.
struct LaunchContext {
  std::string worker_binary;
  std::string work_folder;
  std::string token_file;
  int64_t cpus = 1;              // CPUs that the pod may use
  std::vector<std::string> env;  // the agent's own environment
  std::string boot_id;           // of this agent process
  bool keep_survivors = true;    // workers whose peers are gone serve the next round, too
};

// Everything that one worker needs to start; a pure function of the assignment.
struct Launch {
  int64_t round = 0;
  int64_t rank = 0;
  std::vector<std::string> argv;
  std::vector<std::string> env;
  std::string config_path;    // empty for a user's command, which has no config
  std::string progress_path;  // only for a user's command
  WorkerConfig config;        // without descriptors
  std::string log_path;
};

// Runs `lockstep-worker --config FILE` for train, else the user's command. The environment is the
// agent's, with the rank's variables (rank_environment.h). If the job does not set the number of
// threads, CPUs are split evenly among the node's processes. GPUs are assigned in turn: with as
// many ranks as GPUs, local rank i has GPU i. 0 <= local_rank < processes_per_node.
Launch make_launch(const Assignment& assignment, int64_t local_rank, const LaunchContext& context);

}  // namespace lockstep::node
